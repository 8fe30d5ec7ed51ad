//! System calls that no library wraps: `mount_setattr(2)`, a process in a separate user namespace, project quotas, and a thread in a mount
//! namespace of its own.
//!
//! Only this file contains `unsafe` code. The first two are needed for idmapped mounts. rustix 1.1 has no `mount_setattr`, and the kernel
//! takes the map only as a user namespace, which exists only through a process in it. Project quotas are set by `quotactl_fd(2)` and two
//! `ioctl(2)` requests, none of which rustix has.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_long, c_uint};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `struct mount_attr` of `mount_setattr(2)`. The kernel extends it only at its end.
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
pub(crate) const MS_SHARED: u64 = 1 << 20;

/// Changes the attributes of a mount that no process sees yet.
pub(crate) fn mount_setattr(mount: BorrowedFd<'_>, attr: &MountAttr) -> io::Result<()> {
    let flags = libc::AT_EMPTY_PATH.cast_unsigned();
    // SAFETY: the path is a NUL-terminated constant. `attr` is a live `struct mount_attr` whose exact size is passed. The descriptor is
    // borrowed for the call, and the kernel only reads its arguments.
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

/// Gives this thread a mount namespace, which ends with it. Its working directory and root are its own from then on.
pub(crate) fn own_mount_namespace() -> io::Result<()> {
    // SAFETY: takes a flag and no pointer. Only this thread gets the new namespace, and no descriptor of the process changes.
    match unsafe { libc::unshare(libc::CLONE_NEWNS) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has a descriptor refer to what another one refers to. It stays closed on exec.
pub(crate) fn replace(descriptor: BorrowedFd<'_>, by: &OwnedFd) -> io::Result<()> {
    // SAFETY: both are open, and the number stays open and its owner's: what it refers to is replaced in one step.
    match unsafe { libc::dup3(by.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A process that only waits in a separate user namespace until the value is dropped.
pub(crate) struct UserNamespaceHolder {
    pid: libc::pid_t,
    /// Write end of a pipe. Closing it ends the process.
    _lifeline: OwnedFd,
}

impl UserNamespaceHolder {
    pub(crate) fn start() -> io::Result<Self> {
        let (waits_on, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        // Exit signal 0: no SIGCHLD handler runs, and only `__WALL` reaps it.
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
        // SAFETY: `pid` is our own child, which no other code reaps (see `start`), so that the number is still its own; a null status
        // pointer is allowed.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            while libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) == -1
                && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
            {}
        }
    }
}

/// Runs the child: waits until the parent closes its end, then exits.
fn wait_for_end(waits_on: BorrowedFd<'_>, lifeline: BorrowedFd<'_>) -> ! {
    let mut byte = 0_u8;
    // SAFETY: raw system calls on descriptors of which this process owns copies; `byte` outlives the call. `_exit` runs no destructor, so
    // that no resource of the parent is released twice.
    unsafe {
        libc::syscall(libc::SYS_close, lifeline.as_raw_fd());
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        libc::syscall(libc::SYS_read, waits_on.as_raw_fd(), std::ptr::from_mut(&mut byte), 1_usize);
        loop {
            libc::syscall(libc::SYS_exit_group, 0 as c_int);
        }
    }
}

/// `struct fsxattr` of `linux/fs.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FsXattr {
    pub(crate) flags: u32,
    extent_size: u32,
    extents: u32,
    pub(crate) project: u32,
    copy_extent_size: u32,
    padding: [u8; 8],
}

/// Flag of a directory whose new files inherit its project.
pub(crate) const FS_XFLAG_PROJINHERIT: u32 = 0x200;
/// `_IOR('X', 31, struct fsxattr)`
const FS_IOC_FSGETXATTR: u64 = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)`
const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;

/// Returns the attributes of an open file or directory.
pub(crate) fn get_fsxattr(file: BorrowedFd<'_>) -> io::Result<FsXattr> {
    let mut attributes = FsXattr::default();
    // SAFETY: the request writes one `struct fsxattr`, whose size is part of its number, into a live one; the descriptor is
    // borrowed for the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_ioctl,
            file.as_raw_fd(),
            FS_IOC_FSGETXATTR,
            std::ptr::from_mut(&mut attributes),
        )
    };
    if result == 0 { Ok(attributes) } else { Err(io::Error::last_os_error()) }
}

/// Changes the attributes of an open file or directory.
pub(crate) fn set_fsxattr(file: BorrowedFd<'_>, attributes: &FsXattr) -> io::Result<()> {
    // SAFETY: the request reads one `struct fsxattr`, whose size is part of its number, from a live one; the descriptor is
    // borrowed for the call.
    let result = unsafe {
        libc::syscall(libc::SYS_ioctl, file.as_raw_fd(), FS_IOC_FSSETXATTR, std::ptr::from_ref(attributes))
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The kernel's data about a project: bytes and inodes, and their limits in blocks of 1 KiB and inodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ProjectQuota {
    pub(crate) bytes: u64,
    pub(crate) files: u64,
    pub(crate) most_blocks: u64,
    pub(crate) most_files: u64,
}

/// `struct if_dqblk` of `linux/quota.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Dqblk {
    most_blocks: u64,
    soft_blocks: u64,
    bytes: u64,
    most_files: u64,
    soft_files: u64,
    files: u64,
    block_time: u64,
    file_time: u64,
    valid: u32,
}

/// `struct fs_quota_statv` of `linux/dqblk_xfs.h`, with only the fields that are read here.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct QuotaState {
    version: u8,
    padding: u8,
    flags: u16,
    rest: [u64; 24],
}

const PROJECT_QUOTA: c_uint = 2;
const Q_GETQUOTA: c_uint = 0x80_0007;
const Q_SETQUOTA: c_uint = 0x80_0008;
const Q_XGETQSTATV: c_uint = 0x5808;
/// Marks the limits of blocks and of inodes as valid.
const QIF_LIMITS: u32 = 1 | 4;
const QUOTA_STATE_VERSION: u8 = 1;
const PROJECTS_ARE_HELD: u16 = 1 << 5;

/// Returns true if the file system of an open directory enforces project limits.
pub(crate) fn project_quota_enforced(directory: BorrowedFd<'_>) -> io::Result<bool> {
    let mut state = QuotaState { version: QUOTA_STATE_VERSION, ..QuotaState::default() };
    // SAFETY: a `QuotaState` is at least as large as the 168 bytes of `struct fs_quota_statv` in its first version.
    unsafe { quotactl(directory, Q_XGETQSTATV, 0, std::ptr::from_mut(&mut state).cast()) }?;
    Ok(state.flags & PROJECTS_ARE_HELD != 0)
}

pub(crate) fn get_project_quota(directory: BorrowedFd<'_>, project: u32) -> io::Result<ProjectQuota> {
    let mut block = Dqblk::default();
    // SAFETY: the command writes one `struct if_dqblk`, which `Dqblk` is.
    unsafe { quotactl(directory, Q_GETQUOTA, project, std::ptr::from_mut(&mut block).cast()) }?;
    let Dqblk { bytes, files, most_blocks, most_files, .. } = block;
    Ok(ProjectQuota { bytes, files, most_blocks, most_files })
}

/// Limits a project to blocks of 1 KiB and to inodes. 0 means no limit.
pub(crate) fn set_project_limits(
    directory: BorrowedFd<'_>,
    project: u32,
    most_blocks: u64,
    most_files: u64,
) -> io::Result<()> {
    let mut block = Dqblk { most_blocks, most_files, valid: QIF_LIMITS, ..Dqblk::default() };
    // SAFETY: the command reads one `struct if_dqblk`, which `Dqblk` is.
    unsafe { quotactl(directory, Q_SETQUOTA, project, std::ptr::from_mut(&mut block).cast()) }
}

/// Calls `quotactl_fd(2)` for project quotas.
///
/// # Safety
/// `data` points to what `command` reads or writes.
unsafe fn quotactl(
    directory: BorrowedFd<'_>,
    command: c_uint,
    project: u32,
    data: *mut libc::c_void,
) -> io::Result<()> {
    let command = (command << 8) | PROJECT_QUOTA;
    // SAFETY: the caller answers for `data`; the descriptor is borrowed for the call.
    let result =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, directory.as_raw_fd(), command, project, data) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
