//! Data by which a later daemon recognises a run that outlived the one before.
//!
//! Paths prove nothing, because a path may name another directory by then. Mounted directories are identified by device and inode, which no
//! other directory can have while the container holds them.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::PathBuf;

use host_launch::Owner;
use identity::RunId;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Facts of a run's launch that the rest of its record does not contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFingerprint {
    /// Start time of the container's first process, as the engine writes it.
    pub container_started: String,
    /// Path of the guest's binary on the host. A later release has a different one.
    pub guest: PathBuf,
    /// Owner of the workspace, under whose ids the host lane has to run.
    pub owner: Owner,
    /// True if that owner appears as the run's user through the mount.
    pub is_mapped: bool,
    pub workspace: Place,
    pub state: Place,
    pub private: Place,
    pub pkg: Option<Place>,
    /// `None` if the run was launched by a release that kept its log in `/state`.
    #[serde(default)]
    pub log: Option<Place>,
    /// Writable root, if the run has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Place>,
    /// Id under which a warm container was made, before it was this run's. Its slots and its label have this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<RunId>,
    /// Name server of a run whose connections were steered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<Ipv4Addr>,
    /// Bundles of certificates in the image over which the run's own is mounted. `None` for a run without a bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundles: Option<Vec<String>>,
    /// Repository of a workspace that is a linked work tree, if git operations use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linked: Option<Linked>,
}

/// A linked work tree in its repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linked {
    pub path: PathBuf,
    pub repository: Place,
    /// Name of the work tree in the repository, and the directory of this name.
    pub work_tree: String,
    pub own: Place,
}

impl LaunchFingerprint {
    /// Returns the id under which the container of `run` was made.
    pub fn made_as(&self, run: RunId) -> RunId {
        self.warm.unwrap_or(run)
    }
}

/// Identity of a directory while it exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    device: u64,
    inode: u64,
    /// Owner of the directory on disk.
    uid: u32,
}

impl Place {
    pub fn of(directory: impl AsFd) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(directory)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, uid: stat.st_uid })
    }

    /// Returns true if both are the same directory, even if its owner has changed.
    pub fn is(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}
