//! The system calls that no library wraps: `mount_setattr(2)`, and a process in a user namespace of its own.
//!
//! Only this file holds `unsafe` code. Both calls are needed for idmapped mounts: rustix 1.1 has no `mount_setattr`,
//! and the kernel takes the map only as a user namespace, which only a process that lives in it can bring about.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `struct mount_attr` of `mount_setattr(2)`; the kernel extends it at its end only.
#[repr(C)]
pub(crate) struct MountAttr {
    pub(crate) set: u64,
    pub(crate) clear: u64,
    pub(crate) propagation: u64,
    pub(crate) userns_fd: u64,
}

pub(crate) const MOUNT_ATTR_RDONLY: u64 = 0x1;
pub(crate) const MOUNT_ATTR_NOSUID: u64 = 0x2;
pub(crate) const MOUNT_ATTR_NODEV: u64 = 0x4;
pub(crate) const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;
pub(crate) const MS_PRIVATE: u64 = 1 << 18;

/// Changes the attributes of a mount that nobody sees yet.
pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, attr: &MountAttr) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the path is a NUL-terminated constant, `attr` is a live `struct mount_attr` whose exact size is passed,
    // the descriptor is borrowed for the call, and the kernel only reads what it is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags as c_uint,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A process that waits in a user namespace of its own until it is dropped, and does nothing else.
pub(crate) struct UserNamespaceHolder {
    pid: libc::pid_t,
    /// Closing it ends the process.
    _lifeline: OwnedFd,
}

impl UserNamespaceHolder {
    pub(crate) fn start() -> io::Result<Self> {
        let (waits_on, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // Exit signal 0: nobody's SIGCHLD handler is woken, and only `__WALL` reaps it.
        let flags = c_long::from(libc::CLONE_NEWUSER);
        // SAFETY: without CLONE_VM and with no stack given this is a fork. The child runs on a copy of this stack and
        // calls nothing but raw, async-signal-safe system calls in `wait_for_end`, which never returns; no lock that
        // another thread held at the time is touched.
        let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
        match pid {
            0 => wait_for_end(waits_on.as_fd(), lifeline.as_fd()),
            1.. => {
                Ok(Self { pid: libc::pid_t::try_from(pid).map_err(io::Error::other)?, _lifeline: lifeline })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn pid(&self) -> libc::pid_t {
        self.pid
    }
}

impl Drop for UserNamespaceHolder {
    fn drop(&mut self) {
        // SAFETY: `pid` is our own child, which nobody else reaps (see `start`), so that the number is still its own;
        // a null status pointer is allowed.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// The child's whole life: wait until the parent closes its end, then go.
fn wait_for_end(waits_on: BorrowedFd<'_>, lifeline: BorrowedFd<'_>) -> ! {
    let mut byte = 0_u8;
    // SAFETY: raw system calls on descriptors that this process owns copies of; `byte` outlives the call. `_exit` runs
    // no destructor, so that nothing of the parent's is undone twice.
    unsafe {
        libc::syscall(libc::SYS_close, lifeline.as_raw_fd());
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        libc::syscall(libc::SYS_read, waits_on.as_raw_fd(), std::ptr::from_mut(&mut byte), 1_usize);
        loop {
            libc::syscall(libc::SYS_exit_group, 0 as c_int);
        }
    }
}
