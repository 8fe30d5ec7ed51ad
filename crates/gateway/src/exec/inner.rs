//! What one command runs: commands in its arguments, scripts, and what it reads.

/// What one command runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inner {
    /// It runs others at all.
    pub(super) wraps: bool,
    /// Command lines that begin at these places of its own.
    pub(super) offsets: Vec<usize>,
    /// Command lines that are put together from parts of its own.
    pub(super) lines: Vec<Vec<String>>,
    /// Texts that it takes for scripts.
    pub(super) texts: Vec<String>,
    /// Texts that it hands on, perhaps to one that takes them for scripts.
    pub(super) inputs: Vec<String>,
    /// It runs commands that it reads.
    pub(super) reads: bool,
    /// What it runs is made of what it reads, or of words of which it is not known how it takes them.
    pub(super) opaque: bool,
}

/// One that runs the command lines at these places.
pub(super) fn wraps(offsets: Vec<usize>) -> Inner {
    // Several places: one of them, and it is not known which.
    Inner { wraps: true, opaque: offsets.len() > 1, offsets, ..Inner::default() }
}

/// The text after `=`.
pub(super) fn value_of(arg: &str) -> Option<&str> {
    arg.split_once('=').map(|(_, value)| value)
}
