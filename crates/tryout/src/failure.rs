//! Failures, each with the next step for a person.

use std::fmt;
use std::io;
use std::path::Path;

/// Failure of a command.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The command line names something that cannot be used.
    Usage { message: String, next: String },
    /// This host lacks something, or a step failed.
    Failed { message: String, next: String },
    /// This signal ended the command, which removed its files and processes first.
    Interrupted(u8),
}

impl Failure {
    pub(crate) fn usage(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), next: next.into() }
    }

    pub(crate) fn failed(message: impl Into<String>, next: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), next: next.into() }
    }

    /// Creates the failure of an operation on a file.
    pub(crate) fn of_file(path: &Path, error: &io::Error) -> Self {
        Self::failed(format!("{}: {error}", path.display()), "")
    }

    /// Returns the next step for a person; empty if there is none.
    pub fn next(&self) -> &str {
        match self {
            Self::Usage { next, .. } | Self::Failed { next, .. } => next,
            Self::Interrupted(_) => "",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage { message, .. } | Self::Failed { message, .. } => f.write_str(message),
            Self::Interrupted(_) => f.write_str("a signal ended this command"),
        }
    }
}

impl std::error::Error for Failure {}
