//! Gives up the rights of this process before it hears a byte of a program.
//!
//! Each step needs rights that a later one removes, so the order matters:
//!
//! 1. new mount, pid, ipc, uts and cgroup namespaces. The network is the host's: to reach it is the task of this process;
//! 2. `pivot_root` into an empty read-only tmpfs;
//! 3. limits; bounding set, groups, gid, uid, capabilities, `no_new_privs`, non-dumpable;
//! 4. Landlock where the kernel has it: no file, no listening port, no signal and no abstract socket outside;
//! 5. in the new process, which is pid 1 of its namespace: no further process, and seccomp.

use std::io;

use confinement::landlock::{CompatLevel, Network, RulesetStatus, restrict};
use confinement::seccomp::{Argument, Filters, Rules, equal, fault, unconditional};
use confinement::sys::unshare;
use confinement::{SetupError, limit, privileges, root, step};
use rustix::fs::{Gid, Uid};
use rustix::process::Resource;
use rustix::thread::UnshareFlags;
use seccompiler::BackendError;

const NEW: UnshareFlags = UnshareFlags::NEWNS
    .union(UnshareFlags::NEWIPC)
    .union(UnshareFlags::NEWUTS)
    .union(UnshareFlags::NEWPID)
    .union(UnshareFlags::NEWCGROUP);

const MIB: u64 = 1024 * 1024;
/// Address space of the process, and more for each connection. One whose TLS is ended here has buffers of TLS and HTTP.
const MEMORY: u64 = 256 * MIB;
const MEMORY_PER_CONNECTION: u64 = MIB;
/// Descriptors of the process, with the least bound of handles that wait for a frame.
const FILES: u64 = 144;
/// Descriptors of a connection: its two ends, and a handle that waits.
const FILES_PER_CONNECTION: u64 = 3;

/// Takes all steps but those of [`filters`]. Returns the parts of the jail that this kernel lacks.
pub fn enter(uid: Uid, gid: Gid, max_connections: u32) -> Result<Vec<String>, SetupError> {
    if uid.is_root() || gid.is_root() {
        return Err(SetupError::new("taking an identity", io::ErrorKind::InvalidInput)
            .hint(" (it needs a user and a group of its own)"));
    }
    unshare(NEW).map_err(step("creating namespaces"))?;
    root::make_private()?;
    let top = root::empty()?;
    root::enter(&top)?;
    root::seal(&top)?;
    drop(top);
    limits(max_connections.into()).map_err(step("setting limits"))?;
    privileges::drop_all(Some((uid, gid)))?;
    let directories: [(std::os::fd::BorrowedFd<'_>, bool); 0] = [];
    let landlock = restrict(directories, Network::BindTcp, CompatLevel::BestEffort)
        .map_err(|error| SetupError::new("Landlock", io::Error::other(error)))?;
    let is_whole = landlock == RulesetStatus::FullyEnforced;
    Ok(if is_whole { Vec::new() } else { vec!["landlock".to_owned()] })
}

fn limits(connections: u64) -> io::Result<()> {
    for (resource, most) in [
        (Resource::Core, 0),
        (Resource::Nofile, FILES + FILES_PER_CONNECTION * connections),
        (Resource::Fsize, 0),
        (Resource::As, MEMORY + MEMORY_PER_CONNECTION * connections),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
    ] {
        limit(resource, most)?;
    }
    Ok(())
}

/// Takes the last step but one: no further process. Returns the filters, whose installation is the last. For a process of one thread.
pub fn filters() -> Result<Filters, SetupError> {
    let filters = Filters::allowing(allowed().map_err(fault)?)?;
    limit(Resource::Nproc, 0).map_err(step("setting limits"))?;
    Ok(filters)
}

fn allowed() -> Result<Rules, BackendError> {
    let mut rules = unconditional(ALLOWED);
    // Sockets of TCP alone, with a few options.
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        for protocol in [0, libc::IPPROTO_TCP] {
            let kind = Argument {
                index: 1,
                value: libc::SOCK_STREAM,
                ignored: libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            };
            sockets.push(equal([Argument::is(0, family), kind, Argument::is(2, protocol)])?);
        }
    }
    rules.insert(libc::SYS_socket, sockets);
    let option = |level, name| equal([Argument::is(1, level), Argument::is(2, name)]);
    let options = [
        (libc::IPPROTO_TCP, libc::TCP_NODELAY),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
        (libc::SOL_SOCKET, libc::SO_LINGER),
    ];
    let options = options.map(|(level, name)| option(level, name));
    rules.insert(libc::SYS_setsockopt, options.into_iter().collect::<Result<_, _>>()?);
    let commands = [libc::F_DUPFD_CLOEXEC, libc::F_GETFD, libc::F_GETFL];
    let commands = commands.map(|command| equal([Argument::is(1, command)]));
    rules.insert(libc::SYS_fcntl, commands.into_iter().collect::<Result<_, _>>()?);
    // Only to install the filters after this one.
    rules.insert(libc::SYS_prctl, vec![equal([Argument::is(0, libc::PR_SET_NO_NEW_PRIVS)])?]);
    rules.insert(libc::SYS_seccomp, Vec::new());
    Ok(rules)
}

const ALLOWED: &[i64] = &[
    // Sockets; `socket` and `setsockopt` have conditions. `bind` and `listen` are missing.
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_shutdown,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_eventfd2,
    // Memory; `confinement` adds mmap and mprotect, with conditions.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    // The process itself, and the end of its child.
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_clock_gettime,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getpid,
];

#[cfg(test)]
mod tests {
    use confinement::seccomp::DEADLY;

    use super::*;

    #[test]
    fn the_filter_compiles_and_lacks_what_the_task_does_not_need() {
        Filters::allowing(allowed().unwrap()).unwrap();
        let allowed = allowed().unwrap();
        assert!(DEADLY.iter().all(|call| !allowed.contains_key(call)));
        for never in [
            libc::SYS_openat,
            libc::SYS_bind,
            libc::SYS_listen,
            libc::SYS_socketpair,
            libc::SYS_clone,
            libc::SYS_clone3,
            libc::SYS_kill,
            libc::SYS_ioctl,
            libc::SYS_prlimit64,
            libc::SYS_sendmsg,
            libc::SYS_memfd_create,
        ] {
            assert!(!allowed.contains_key(&never), "{never}");
        }
    }

    #[test]
    fn root_is_no_identity_for_it() {
        for (uid, gid) in [(Uid::ROOT, Gid::from_raw(1)), (Uid::from_raw(1), Gid::ROOT)] {
            assert!(enter(uid, gid, 1).unwrap_err().to_string().contains("of its own"));
        }
    }
}
