//! A failed transaction, and the steps that it could not undo.

use std::fmt;

use thiserror::Error;

use crate::error::WriteError;

#[derive(Debug, Error)]
#[error("{cause}{}", after(.left, *.undone))]
pub struct CommitError {
    #[source]
    pub cause: WriteError,
    /// All files that do not have their old content and name.
    pub left: Vec<Left>,
    /// True if the changes were undone. Otherwise all changes *were* made, but a power loss could undo them.
    pub undone: bool,
}

/// A file that could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Path of the file, fit for a message.
    pub path: String,
    /// State of the file now.
    pub state: LeftState,
}

/// State of a file after a failed attempt to restore it. In each case another process has interfered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftState {
    /// Different content, which another process wrote after the change.
    Theirs,
    /// The new content. Another process has removed the old one.
    New,
    /// No file. Another process has removed it.
    Gone,
    /// Perhaps the new content: its directory or its name could not be used.
    Unknown,
}

impl CommitError {
    pub(super) fn new(cause: WriteError, left: Vec<Left>) -> Self {
        Self { cause, left, undone: true }
    }

    pub(super) fn undone(cause: WriteError) -> Self {
        Self::new(cause, Vec::new())
    }

    pub(super) fn not_durable(cause: WriteError) -> Self {
        Self { cause, left: Vec::new(), undone: false }
    }
}

impl fmt::Display for LeftState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Theirs => "was changed by another process meanwhile, and was left as it is",
            Self::New => "has the new content, because another process removed the old one meanwhile",
            Self::Gone => "no longer exists, because another process removed it meanwhile",
            Self::Unknown => "could not be examined again, and may have the new content",
        })
    }
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.state)
    }
}

fn after(left: &[Left], undone: bool) -> String {
    match (undone, left) {
        (false, _) => "; all of its files were changed, but a loss of power may undo that".to_owned(),
        (true, []) => "; no file was changed".to_owned(),
        (true, left) => {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            format!("; all files are unchanged, except these: {}", left.join("; "))
        }
    }
}
