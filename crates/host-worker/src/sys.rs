//! Makes the system calls that no safe wrapper covers. The only module with `unsafe` in this crate.
//!
//! All of it runs in `coffer-host-worker`, which has one thread; that makes `fork` and `unshare` sound. The process of an operation
//! can neither fork nor start a thread.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem};

use confinement::sys::close_from;
use git2::ConfigLevel;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::stdio::stdin;

/// The kernel's report of a child that is over: how it ended, and its usage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    /// Its exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Processor time, user and system, microseconds.
    pub(crate) cpu_us: u64,
    /// Peak resident memory, bytes. Pages that it shared with the host worker count.
    pub(crate) peak_memory: u64,
}

/// Reaps a child, if it is over.
pub(crate) fn collect(process: BorrowedFd<'_>) -> io::Result<Option<Exit>> {
    // SAFETY: both are plain numbers, for which zeroes are values; the kernel fills them in and keeps no pointer.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { (mem::zeroed(), mem::zeroed()) };
    // SAFETY: the descriptor is open, and the pointers are to locals of the types that waitid(2) fills in. The C library's
    // own function lacks the last argument.
    let status = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            process.as_raw_fd(),
            &raw mut info,
            libc::WEXITED | libc::WNOHANG,
            &raw mut usage,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has filled in what waitid fills in, or left zeroes where no child is over.
    let (pid, how) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    let by_itself = info.si_code == libc::CLD_EXITED;
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Ok(Some(Exit {
        code: by_itself.then_some(how),
        signal: (!by_itself).then_some(how),
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        peak_memory: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    }))
}

/// Ends this process at once: no destructors, no exit handlers, nothing that belongs to the process forked from.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: takes no pointers and does not return.
    unsafe { libc::_exit(status) }
}

/// Returns true if the daemon that started this process is gone: its end of the channel, standard input, is closed.
pub(crate) fn is_abandoned() -> bool {
    let channel = stdin();
    let mut polled = [PollFd::new(&channel, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Closes every descriptor from 3 on but these.
pub(crate) fn close_others(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut kept: Vec<u32> = kept.iter().map(|kept| kept.as_raw_fd().unsigned_abs()).collect();
    kept.sort_unstable();
    let mut first = 3;
    for kept in kept {
        if kept > first {
            // SAFETY: called only in a fresh child that uses none of what it closes and ends with `exit_now`, so no owner of a
            // closed descriptor lives on.
            match unsafe { libc::syscall(libc::SYS_close_range, first, kept - 1, 0) } {
                0 => {}
                _ => return Err(io::Error::last_os_error()),
            }
        }
        first = first.max(kept + 1);
    }
    close_from(first)
}

/// Ends this process by SIGALRM after so many seconds, in case the parent fails to end it.
pub(crate) fn alarm(seconds: u32) {
    // SAFETY: takes no pointers.
    unsafe { libc::alarm(seconds) };
}

/// Ends this process after so many seconds, also as the first one of its namespace, which only a signal with a handler reaches.
pub(crate) fn end_after(seconds: u32) {
    extern "C" fn end(_: libc::c_int) {
        exit_now(1);
    }
    // SAFETY: the handler calls `_exit` alone, which a handler may do at any time.
    unsafe { libc::signal(libc::SIGALRM, end as *const () as libc::sighandler_t) };
    alarm(seconds);
}

/// Ignores SIGXFSZ: a write beyond the file size limit then fails with EFBIG instead of ending the process.
pub(crate) fn ignore_file_size_signal() {
    // SAFETY: installs no handler, only the constant "ignore".
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Restricts libgit2 for this process: no configuration but the repository's own, durable and verified objects, checked ownership,
/// bounded memory.
pub(crate) fn restrict_libgit2() -> Result<(), git2::Error> {
    const WINDOW: usize = 16 * 1024 * 1024;
    const MAPPED: usize = 128 * 1024 * 1024;
    const CACHE: isize = 32 * 1024 * 1024;
    // SAFETY: these change globals of libgit2, which is safe while no other thread uses it: none ever does.
    unsafe {
        for level in [ConfigLevel::System, ConfigLevel::Global, ConfigLevel::XDG, ConfigLevel::ProgramData] {
            git2::opts::set_search_path(level, "")?;
        }
        git2::opts::set_verify_owner_validation(true)?;
        // `git/repository.rs` checks these extensions before a repository is opened.
        git2::opts::set_extensions(&["partialclone", "refstorage", "noop-v1"])?;
        git2::opts::set_mwindow_size(WINDOW)?;
        git2::opts::set_mwindow_mapped_limit(MAPPED)?;
        git2::opts::set_cache_max_size(CACHE)?;
    }
    git2::opts::strict_object_creation(true);
    git2::opts::strict_hash_verification(true);
    // SAFETY: this option takes one int; libgit2 has been initialised by the calls above.
    unsafe {
        libgit2_sys::git_libgit2_opts(
            libgit2_sys::GIT_OPT_ENABLE_FSYNC_GITDIR.cast_signed(),
            1 as libc::c_int,
        )
    };
    Ok(())
}

/// Leaves the comparison of owners to the caller: libgit2 would look for a linked work tree at its path on the host.
pub(crate) fn trust_owners() -> Result<(), git2::Error> {
    // SAFETY: as above.
    unsafe { git2::opts::set_verify_owner_validation(false) }
}

/// System calls that the filters are there to refuse, for their tests.
#[cfg(test)]
pub(crate) mod probe {
    use std::io;

    /// Returns the error of `clone` with these flags. If it succeeds, the new process ends at once.
    pub(crate) fn clone(flags: i32) -> Option<i32> {
        // SAFETY: without a separate stack or any pointer to write to, the new process only returns from here, and then it ends at once.
        ended(unsafe { libc::syscall(libc::SYS_clone, i64::from(flags), 0, 0, 0, 0) })
    }

    /// Returns the error of `clone3` for a plain fork.
    pub(crate) fn clone3() -> Option<i32> {
        let mut arguments = [0_u64; 8];
        arguments[4] = libc::SIGCHLD.unsigned_abs().into();
        // SAFETY: the pointer is to as many bytes as are said, which the kernel only reads.
        ended(unsafe { libc::syscall(libc::SYS_clone3, arguments.as_ptr(), size_of_val(&arguments)) })
    }

    /// Returns the error of a call that has numbers or a null pointer for its arguments.
    pub(crate) fn call(number: i64, [first, second, third]: [i64; 3]) -> Option<i32> {
        // SAFETY: a null pointer means no data to the calls that are probed, and the rest are numbers.
        let result = unsafe { libc::syscall(number, first, second, third, 0) };
        (result == -1).then(|| io::Error::last_os_error().raw_os_error()).flatten()
    }

    fn ended(result: i64) -> Option<i32> {
        match result {
            -1 => io::Error::last_os_error().raw_os_error(),
            0 => super::exit_now(98),
            _ => None,
        }
    }
}
