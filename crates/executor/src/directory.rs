//! What a run or a lane is given of the host: an open directory.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use store::run::Owner;

/// The repository of a linked work tree, which the host worker sees and the container does not.
#[derive(Debug)]
pub struct LinkedRepository {
    pub directory: Directory,
    /// The name that the work tree has in it.
    pub work_tree: String,
}

#[derive(Debug)]
pub struct Directory {
    pub handle: OwnedFd,
    /// For the engine where no mount of our own can be made, and for the operator's eyes.
    pub path: PathBuf,
    /// Whose files the run may use as its owner. Of a directory that is only shown that is the principal, whoever owns
    /// it: an agent must not read as the owner what the owner keeps from others.
    pub owner: Owner,
    /// The owner appears as the run's user already.
    pub is_mapped: bool,
}
