//! The modes in which a run's container has its files: a profile sets them, and the container is made by them.

use std::fmt;

/// Mode of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountMode {
    /// Read and write, as the files' modes permit.
    ReadWrite,
    ReadOnly,
}

/// Part of the image that commands can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RootMode {
    /// No part.
    #[default]
    ReadOnly,
    /// The image's directories, in a layer that belongs to the run. A name then no longer identifies a program.
    WritableLayer,
}

/// Permission to run programs in `/tmp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TmpMode {
    #[default]
    NoExec,
    Exec,
}

impl RootMode {
    /// Returns the home of the run's user. On a read-only root, `/tmp` is the one place that every container can write to.
    pub fn home(self) -> &'static str {
        match self {
            Self::ReadOnly => "/tmp",
            Self::WritableLayer => "/home/agent",
        }
    }
}

impl fmt::Display for MountMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::ReadOnly { "read-only" } else { "read-write" })
    }
}

impl fmt::Display for RootMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::ReadOnly { "read-only" } else { "writable-layer" })
    }
}

/// Shows the name of the mount option.
impl fmt::Display for TmpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::NoExec { "noexec" } else { "exec" })
    }
}
