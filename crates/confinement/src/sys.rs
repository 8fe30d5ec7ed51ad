//! Makes the system calls that no safe wrapper covers. The only module with `unsafe` in this crate.
//!
//! All of it runs in programs that have one thread; that makes `fork` and `unshare` sound.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::process::Pid;
use rustix::thread::UnshareFlags;

/// Moves this process into new namespaces.
pub fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the flags never contain FILES, the only one that can invalidate descriptors which safe code still owns.
    unsafe { rustix::thread::unshare_unsafe(flags.difference(UnshareFlags::FILES)) }.map_err(Into::into)
}

pub enum Fork {
    Child,
    /// The old process, with the new one's id.
    Parent(Pid),
}

/// Forks this single-threaded process.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: there is one thread, so no lock can be held by a thread that the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid).map(Fork::Parent).ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL)),
    }
}

/// Closes every descriptor from `first` on.
pub fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: called only before anything else is opened, or in a fresh child that uses none of what it closes and
    // ends without destructors, so no owner of a closed descriptor lives on.
    match unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets attributes (`MOUNT_ATTR_*`) on a mount, and takes it out of any propagation.
pub fn restrict_mount(mount: BorrowedFd<'_>, attributes: u64) -> io::Result<()> {
    let request =
        libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    // SAFETY: the descriptor is open, the path is an empty C string, and `request` lives through the call with the
    // size that is given.
    let status = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const request,
            size_of::<libc::mount_attr>(),
        )
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
