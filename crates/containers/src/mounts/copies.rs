//! Copies of mounts that are attached nowhere, such as an overlay's, on kernels before 6.15.
//!
//! These kernels copy only mounts of the caller's mount namespace. So a thread makes a namespace that ends with it, attaches the mount there
//! and copies it twice. The attached mount is gone with the namespace. One copy takes its place in the caller's descriptor:
//!
//! ```text
//! descriptor ─► mount, detached ─► attached in the thread's namespace ─► gone
//! descriptor ─► first copy                        └──► second copy ─► the caller's
//! ```

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use parking_lot::Mutex;
use rustix::mount::{
    MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount_change, move_mount, open_tree,
};

use super::{MountError, failed};
use crate::sys;

/// Held while a descriptor has a mount that is gone soon.
static ONE: Mutex<()> = Mutex::new(());

/// Returns a detached copy of a mount that is attached nowhere. The descriptor refers to another copy of it afterwards.
///
/// Fails without an effect if the mount is attached elsewhere.
pub(super) fn copy_detached(source: BorrowedFd<'_>) -> Result<OwnedFd, MountError> {
    let _one = ONE.lock();
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| {
            sys::own_mount_namespace().map_err(failed("make a namespace to copy a mount in"))?;
            // Nothing of this namespace appears elsewhere.
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            mount_change("/", private).map_err(failed("separate the mounts of a namespace"))?;
            let top = super::place_of(Path::new("/"))?;
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
            move_mount(source, "", &top, "", flags).map_err(failed("attach the mount to copy it"))?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_EMPTY_PATH;
            let copy = || open_tree(source, "", flags).map_err(failed("copy the attached mount"));
            let (first, second) = (copy()?, copy()?);
            sys::replace(source, &first).map_err(failed("keep a copy of the mount"))?;
            Ok(second)
        });
        copied.join().unwrap_or_else(|_| {
            Err(failed("copy a mount")(std::io::Error::other("the copying thread failed")))
        })
    })
}
