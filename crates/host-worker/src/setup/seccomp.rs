//! Filters the system calls of the host worker.
//!
//! The process of one operation gets a further filter before it reads the first byte that an agent wrote. Under it the process can
//! neither start a process or a thread, nor signal another process, nor change its limits.

use std::io;

use seccompiler::{
    BackendError, SeccompCmpArgLen as Len, SeccompCmpOp as Cmp, SeccompCondition, SeccompRule,
};

use confinement::SetupError;
use confinement::seccomp::{
    Argument, Filter, Filters, Rules, equal, fault, refusing, unconditional, without,
};

/// Returns the filters of the host worker.
pub(super) fn filters() -> Result<Filters, SetupError> {
    Filters::allowing(allowed().map_err(fault)?)
}

/// The additional filter of an operation's process.
#[derive(Debug)]
pub(crate) struct ChildFilter(Filter);

impl ChildFilter {
    pub(crate) fn new() -> Result<Self, SetupError> {
        Ok(Self(refusing(not_for_operations().map_err(fault)?)?))
    }

    /// Keeps this process, which has one thread, from starting a thread or a process and from reaching another one.
    pub(crate) fn forbid_processes(&self) -> io::Result<()> {
        self.0.install()
    }
}

/// Returns what an operation's process may not do: the calls, the limits of another process, and signals to another process by
/// `fcntl`.
fn not_for_operations() -> Result<Rules, BackendError> {
    let mut rules = unconditional(NOT_FOR_OPERATIONS);
    let of_another = SeccompCondition::new(0, Len::Dword, Cmp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![of_another])?]);
    let owners = [libc::F_SETOWN, F_SETOWN_EX, F_SETSIG];
    rules.insert(
        libc::SYS_fcntl,
        owners.into_iter().map(|command| equal([Argument::is(1, command)])).collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

fn allowed() -> Result<Rules, BackendError> {
    let mut rules = unconditional(ALLOWED);
    rules.append(&mut unconditional(ALLOWED_HERE));
    // No new namespaces with a fork.
    rules.insert(libc::SYS_clone, vec![without(0, CLONE_NAMESPACES)?]);
    let prctl = [libc::PR_SET_PDEATHSIG, libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_VMA];
    rules.insert(
        libc::SYS_prctl,
        prctl.into_iter().map(|option| equal([Argument::is(0, option)])).collect::<Result<_, _>>()?,
    );
    Ok(rules)
}

/// `fcntl` commands that libc lacks, fcntl(2).
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

#[allow(clippy::cast_sign_loss)] // flag bits
const CLONE_NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;

/// Calls that only the host worker may make, and not an operation's process. Without `tgkill` an abort ends by an illegal
/// instruction.
const NOT_FOR_OPERATIONS: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
];

const ALLOWED: &[i64] = &[
    // Files: the jail's root and the mounts decide which.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_lseek,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_fgetxattr,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_symlinkat,
    libc::SYS_linkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_copy_file_range,
    libc::SYS_sendfile,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_syncfs,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    // Handles from the daemon. There is no call that makes or connects a socket.
    libc::SYS_recvmsg,
    libc::SYS_umask,
    // Memory; `confinement` adds mmap and mprotect, with conditions.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Processes of the host worker; clone and prctl have conditions.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_seccomp,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    // Signals, time, chance.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_setitimer,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_uname,
    libc::SYS_getrandom,
];

/// Further calls of older architectures.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_mkdir,
    libc::SYS_rmdir,
    libc::SYS_unlink,
    libc::SYS_symlink,
    libc::SYS_link,
    libc::SYS_rename,
    libc::SYS_chmod,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_alarm,
    libc::SYS_time,
    libc::SYS_getrlimit,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[];

#[cfg(test)]
mod tests {
    use confinement::seccomp::DEADLY;
    use confinement::sys::{Fork, fork};

    use super::*;
    use crate::sys;

    /// Whether every way to a process or a thread is refused, by whom and with which error.
    fn makes_no_process() -> bool {
        let refused = |flags| sys::probe::clone(flags) == Some(libc::EPERM);
        fork().is_err_and(|error| error.raw_os_error() == Some(libc::EPERM))
            && refused(libc::SIGCHLD)
            && refused(libc::CLONE_VM | libc::SIGCHLD)
            && refused(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD)
            && refused(libc::CLONE_THREAD)
            && refused(libc::CLONE_NEWUSER | libc::SIGCHLD)
            && sys::probe::clone3() == Some(libc::ENOSYS)
    }

    fn makes_no_thread() -> bool {
        std::thread::Builder::new().spawn(|| {}).is_err()
    }

    fn reaches_no_process() -> bool {
        let another = i64::from(rustix::process::getppid().unwrap().as_raw_nonzero().get());
        let refused = |call, arguments| sys::probe::call(call, arguments) == Some(libc::EPERM);
        let fcntl = |command, value| refused(libc::SYS_fcntl, [0, i64::from(command), value]);
        // Signal 0 and a null pointer: only the filter refuses them so.
        refused(libc::SYS_kill, [another, 0, 0])
            && refused(libc::SYS_tkill, [another, 0, 0])
            && refused(libc::SYS_tgkill, [another, another, 0])
            && refused(libc::SYS_pidfd_open, [another, 0, 0])
            && refused(libc::SYS_prlimit64, [another, 0, 0])
            && fcntl(libc::F_SETOWN, another)
            && fcntl(F_SETOWN_EX, 0)
            && fcntl(F_SETSIG, 0)
            && sys::probe::call(libc::SYS_prlimit64, [0, 0, 0]).is_none()
    }

    /// The number of the first step that was not as it should be; 0 when all were.
    fn live_through_it() -> i32 {
        filters().unwrap().install().unwrap();
        ChildFilter::new().unwrap().forbid_processes().unwrap();
        match () {
            () if !makes_no_process() => 1,
            () if !makes_no_thread() => 2,
            () if !reaches_no_process() => 3,
            () => 0,
        }
    }

    #[test]
    fn an_operation_makes_no_process_or_thread_and_reaches_none() {
        match fork().unwrap() {
            Fork::Child => {
                sys::exit_now(std::panic::catch_unwind(live_through_it).unwrap_or(99));
            }
            Fork::Parent(pid) => {
                let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
                assert_eq!(status.unwrap().unwrap().1.exit_status(), Some(0));
            }
        }
    }

    #[test]
    fn filters_compile_and_do_not_contradict_each_other() {
        filters().unwrap();
        ChildFilter::new().unwrap();
        let allowed = allowed().unwrap();
        assert!(DEADLY.iter().all(|call| !allowed.contains_key(call)));
        for never in
            [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_connect, libc::SYS_sendmsg, libc::SYS_clone3, libc::SYS_ioctl, libc::SYS_setuid, libc::SYS_mknodat]
        {
            assert!(!allowed.contains_key(&never), "{never}");
        }
    }
}
