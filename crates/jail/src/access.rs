//! Kinds of access to a path.

use std::fmt;

/// Kind of access that a caller wants to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads content, names or metadata.
    Read,
    /// Creates, replaces or removes.
    Write,
    /// Runs it as a program, or runs a program with it as an argument.
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
