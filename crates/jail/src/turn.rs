//! Turns of a run's operations, by locks on files in its private directory.
//!
//! A turn lasts until it is dropped, at most as long as the process lives. A process waits at most as long as its
//! operation may take, because it is then killed.

use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_lock, flock};
use rustix::io::{Errno, retry_on_intr};

use crate::private::Private;
use crate::resolve::open_confined;

/// A lock that one operation of the run has at a time.
#[derive(Debug)]
pub(crate) struct Turn {
    _lock: OwnedFd,
}

impl Turn {
    /// Waits for the turn to change several files.
    ///
    /// If two transactions that share a file undid their changes at the same time, each would see the other as an
    /// interfering process.
    pub(crate) fn of_changes(private: &Private) -> Result<Self, Errno> {
        let lock = open(private, b"patches.lock")?;
        retry_on_intr(|| fcntl_lock(&lock, FlockOperation::LockExclusive))?;
        Ok(Self { _lock: lock })
    }

    /// Waits for the turn to check a name and rename a file to it. A file that another operation put there in between
    /// would be lost.
    ///
    /// The turn lasts for these two system calls. It is taken within a turn for changes, never around one.
    pub(crate) fn of_names(private: &Private) -> Result<Self, Errno> {
        let lock = open(private, b"names.lock")?;
        retry_on_intr(|| flock(&lock, FlockOperation::LockExclusive))?;
        Ok(Self { _lock: lock })
    }
}

fn open(private: &Private, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
    open_confined(private, name, flags, Mode::RUSR | Mode::WUSR)
}
