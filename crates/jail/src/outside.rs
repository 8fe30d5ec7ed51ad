//! The files of a container outside the run's mounts.
//!
//! The container's root is the directory in which the kernel starts its paths, so no link leaves it. Unlike in a mount,
//! file systems mounted below it are entered: `/tmp`, the directories of a writable root, `/etc/hosts`. Rules on names
//! exclude the kernel's file systems and the run's mounts ([`crate::Protection`]). This module also compares the opened
//! file itself with them, in case one of them has another name.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FsWord, OFlags, PROC_SUPER_MAGIC, StatxFlags, fstatfs, statx};
use rustix::io::Errno;

use crate::protect::SYSTEM;
use crate::resolve::{LOOK, open_across};

/// File systems whose files belong to the kernel, from `linux/magic.h`.
const KERNELS: [FsWord; 5] = [PROC_SUPER_MAGIC, 0x6265_6572, 0x6367_7270, 0x0027_e0eb, 0x1cd1];

/// The mounts beneath a root that are not entered, by their ids.
#[derive(Debug)]
pub(crate) struct Outside {
    closed: Vec<u64>,
}

impl Outside {
    /// Finds the mounts to exclude: those of `others`, and the system directories of this root.
    pub(crate) fn of(root: &OwnedFd, others: &[BorrowedFd<'_>]) -> Result<Self, Errno> {
        let own = mount_of(root)?;
        let mut closed = others.iter().map(mount_of).collect::<Result<Vec<_>, _>>()?;
        for name in SYSTEM {
            match open_across(root, name.as_bytes(), LOOK) {
                Ok(system) => closed.push(mount_of(&system)?),
                Err(Errno::NOENT | Errno::LOOP) => {}
                Err(errno) => return Err(errno),
            }
        }
        // A directory on the root's own mount is excluded by its name instead.
        closed.retain(|mount| *mount != own);
        Ok(Self { closed })
    }

    pub(crate) fn open(&self, root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let opened = open_across(root, path, flags)?;
        let is_closed =
            self.closed.contains(&mount_of(&opened)?) || KERNELS.contains(&fstatfs(&opened)?.f_type);
        if is_closed { Err(Errno::XDEV) } else { Ok(opened) }
    }
}

fn mount_of(file: impl AsFd) -> Result<u64, Errno> {
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    if known { Ok(found.stx_mnt_id) } else { Err(Errno::NOSYS) }
}
