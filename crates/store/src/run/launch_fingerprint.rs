//! By what a later daemon knows a run again that outlived its own.
//!
//! Paths are no proof: what is at a path can be another directory by then. What was mounted is known by device and inode,
//! which nothing else can have while the container holds it.

use std::os::fd::AsFd;
use std::path::PathBuf;

use identity::RunId;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Owner;

/// What a run was launched with, as far as the rest of its record does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFingerprint {
    /// When the container's first process started, in the engine's words.
    pub container_started: String,
    /// The guest's binary on the host: a later release has another one.
    pub guest: PathBuf,
    /// The workspace's owner, as the host lane has to be.
    pub owner: Owner,
    /// That owner appears as the run's user already.
    pub is_mapped: bool,
    pub workspace: Place,
    pub state: Place,
    pub private: Place,
    pub pkg: Option<Place>,
    /// Not there: the run was launched by a release that kept its log in `/state`.
    #[serde(default)]
    pub log: Option<Place>,
    /// The writable root, of a run that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<Place>,
    /// What a warm container was made as, before it was this run's: its slots and its label have this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<RunId>,
    /// The repository of a workspace that is a linked work tree, if git operations use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linked: Option<Linked>,
}

/// A linked work tree in its repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Linked {
    pub path: PathBuf,
    pub repository: Place,
    /// The name that the work tree has there, and the directory of this name.
    pub work_tree: String,
    pub own: Place,
}

impl LaunchFingerprint {
    /// What the container of `run` was made as.
    pub fn made_as(&self, run: RunId) -> RunId {
        self.warm.unwrap_or(run)
    }
}

/// A directory, for as long as it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    device: u64,
    inode: u64,
    /// Its owner on disk.
    uid: u32,
}

impl Place {
    pub fn of(directory: impl AsFd) -> Result<Self, Errno> {
        let stat = rustix::fs::fstat(directory)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, uid: stat.st_uid })
    }

    /// The same directory, whoever it belongs to.
    pub fn is(self, other: Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}
