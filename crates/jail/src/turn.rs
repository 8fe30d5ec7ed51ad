//! Turns of a run's operations, by locks on files in its private directory.
//!
//! A turn is held until it is dropped, and no longer than the process lives. A process waits no longer than its operation may
//! take: then it is killed.

use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_lock, flock};
use rustix::io::{Errno, retry_on_intr};

use crate::private::Private;
use crate::resolve::open_confined;

/// One operation of the run has it at a time.
#[derive(Debug)]
pub(crate) struct Turn {
    _lock: OwnedFd,
}

impl Turn {
    /// To change several files. Two transactions that meet in a file would otherwise each be somebody else to the other while
    /// they take back what they did.
    pub(crate) fn of_changes(private: &Private) -> Result<Self, Errno> {
        let lock = open(private, b"patches.lock")?;
        retry_on_intr(|| fcntl_lock(&lock, FlockOperation::LockExclusive))?;
        Ok(Self { _lock: lock })
    }

    /// To look at a name and to rename something to it: what another operation puts there in between would be lost. It is held
    /// for these two system calls, and taken within a turn for changes, never around one.
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
