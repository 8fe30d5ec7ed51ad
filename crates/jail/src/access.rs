//! What is wanted at a path.

use std::fmt;

/// What a caller wants to do at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// See content, names or metadata.
    Read,
    /// Create, replace or remove.
    Write,
    /// Run as a program, or run a program with it as an argument.
    Execute,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "reading",
            Self::Write => "writing",
            Self::Execute => "executing",
        })
    }
}
