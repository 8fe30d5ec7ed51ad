//! Functions of the C library that the standard library does not offer.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

unsafe extern "C" {
    pub fn fork() -> c_int;
    pub fn ioctl(file: c_int, request: c_ulong, ...) -> c_int;
    pub fn setsid() -> c_int;
    pub fn pause() -> c_int;
    pub fn raise(signal: c_int) -> c_int;
    pub fn signal(number: c_int, handler: usize) -> usize;
    pub fn kill(pid: c_int, signal: c_int) -> c_int;
    pub fn mknod(path: *const c_char, mode: c_uint, device: u64) -> c_int;
    pub fn setxattr(
        path: *const c_char,
        name: *const c_char,
        value: *const c_void,
        size: usize,
        flags: c_int,
    ) -> c_int;
    pub fn mkfifo(path: *const c_char, mode: c_uint) -> c_int;
    pub fn ptrace(request: c_int, pid: c_int, address: *mut c_void, data: *mut c_void) -> c_long;
    pub fn renameat2(from: c_int, old: *const c_char, to: c_int, new: *const c_char, flags: c_uint) -> c_int;
    pub fn syscall(number: c_long, ...) -> c_long;
}

pub const AT_FDCWD: c_int = -100;
pub const RENAME_EXCHANGE: c_uint = 2;
pub const SIG_IGN: usize = 1;
pub const SIGKILL: c_int = 9;
pub const SIGSTOP: c_int = 19;
pub const SIGTERM: c_int = 15;
pub const SIGXFSZ: c_int = 25;
pub const PTRACE_ATTACH: c_int = 16;
pub const PTRACE_SEIZE: c_int = 0x4206;
pub const EAGAIN: i32 = 11;
pub const TIOCGWINSZ: c_ulong = 0x5413;

/// The same numbers on every architecture.
pub const SYS_PIDFD_SEND_SIGNAL: c_long = 424;
pub const SYS_PIDFD_OPEN: c_long = 434;
pub const SYS_PIDFD_GETFD: c_long = 438;

#[cfg(target_arch = "x86_64")]
pub const SYS_PROCESS_VM_READV: c_long = 310;
#[cfg(target_arch = "x86_64")]
pub const SYS_PROCESS_VM_WRITEV: c_long = 311;
#[cfg(target_arch = "x86_64")]
pub const SYS_PRLIMIT64: c_long = 302;
#[cfg(target_arch = "x86_64")]
pub const SYS_KCMP: c_long = 312;
#[cfg(target_arch = "x86_64")]
pub const SYS_RT_SIGPROCMASK: c_long = 14;
#[cfg(target_arch = "x86_64")]
pub const SYS_RT_SIGQUEUEINFO: c_long = 129;
#[cfg(target_arch = "x86_64")]
pub const SYS_RT_TGSIGQUEUEINFO: c_long = 297;
#[cfg(target_arch = "aarch64")]
pub const SYS_RT_SIGPROCMASK: c_long = 135;
#[cfg(target_arch = "aarch64")]
pub const SYS_RT_SIGQUEUEINFO: c_long = 138;
#[cfg(target_arch = "aarch64")]
pub const SYS_RT_TGSIGQUEUEINFO: c_long = 240;
#[cfg(target_arch = "aarch64")]
pub const SYS_PROCESS_VM_READV: c_long = 270;
#[cfg(target_arch = "aarch64")]
pub const SYS_PROCESS_VM_WRITEV: c_long = 271;
#[cfg(target_arch = "aarch64")]
pub const SYS_PRLIMIT64: c_long = 261;
#[cfg(target_arch = "aarch64")]
pub const SYS_KCMP: c_long = 272;

/// What goes with a signal: its number, no error, the code of `sigqueue(3)`, and a sender that is process 0 of user 0.
#[repr(C)]
pub struct SignalInfo([c_int; 32]);

impl SignalInfo {
    pub fn queued(number: c_int) -> Self {
        let mut info = [0; 32];
        (info[0], info[2]) = (number, -1);
        Self(info)
    }
}

/// Two words of memory, as `process_vm_readv` and `prlimit64` take them.
#[repr(C)]
pub struct Pair(pub c_ulong, pub c_ulong);
