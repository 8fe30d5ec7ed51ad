//! The commands that one command runs: in its arguments, in scripts, and from its input.

/// The commands that one command runs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inner {
    /// Runs other commands.
    pub(super) wraps: bool,
    /// Indices in its own words at which command lines begin.
    pub(super) offsets: Vec<usize>,
    /// Command lines that are assembled from parts of its words.
    pub(super) lines: Vec<Vec<String>>,
    /// Texts that it runs as scripts.
    pub(super) texts: Vec<String>,
    /// Texts that it passes on, perhaps to a program that runs them as scripts.
    pub(super) inputs: Vec<String>,
    /// Runs commands that it reads.
    pub(super) reads: bool,
    /// Assembles commands from its input, or from words whose use is not known.
    pub(super) opaque: bool,
}

/// Makes the result for a command that runs the command lines at these indices.
pub(super) fn wraps(offsets: Vec<usize>) -> Inner {
    // If there are several, one of them is run, and it is not known which.
    Inner { wraps: true, opaque: offsets.len() > 1, offsets, ..Inner::default() }
}

/// Returns the text after `=`.
pub(super) fn value_of(arg: &str) -> Option<&str> {
    arg.split_once('=').map(|(_, value)| value)
}
