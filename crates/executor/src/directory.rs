//! An open directory of the host that a run or a lane gets.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use host_launch::Owner;

/// Repository of a linked work tree. The host worker sees it and the container does not.
#[derive(Debug)]
pub struct LinkedRepository {
    pub directory: Directory,
    /// Name of the work tree in the repository.
    pub work_tree: String,
}

#[derive(Debug)]
pub struct Directory {
    pub handle: OwnedFd,
    /// Path for the engine if the daemon can make no mount itself, and for messages to the operator.
    pub path: PathBuf,
    /// Owner as whom the run may use the files.
    ///
    /// If a directory is only shown, this is the principal and not the owner on disk. Otherwise an agent could read as the owner files
    /// that the owner keeps from others.
    pub owner: Owner,
    /// True if the owner appears as the run's user already.
    pub is_mapped: bool,
}
