//! The roots where a path can begin: the three mounts of a run, and the root of its container.

use std::fmt;

/// A directory tree that a run can see, known by its alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mount {
    /// The workspace: read and write.
    Project,
    /// An unpacked package: read only, always.
    Pkg,
    /// The run's own scratch space: read and write.
    State,
    /// Every other file of the container, beneath `/`. For its own lane only, and only if the profile allows it.
    Container,
}

impl Mount {
    /// The mounts that both lanes share, in the order of their names in messages.
    pub const ALL: [Self; 3] = [Self::Project, Self::Pkg, Self::State];

    /// Returns the name that agents use, such as `@project`.
    pub const fn alias(self) -> &'static str {
        match self {
            Self::Project => "@project",
            Self::Pkg => "@pkg",
            Self::State => "@state",
            Self::Container => "/",
        }
    }

    pub const fn container_path(self) -> &'static str {
        match self {
            Self::Project => "/workspace",
            Self::Pkg => "/pkg",
            Self::State => "/state",
            Self::Container => "/",
        }
    }

    /// Returns true if the mount can be written to at all.
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Project | Self::State | Self::Container)
    }

    /// Returns the mount with exactly this alias. Case matters.
    pub fn from_alias(alias: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mount| mount.alias() == alias)
    }
}

impl fmt::Display for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.alias())
    }
}
