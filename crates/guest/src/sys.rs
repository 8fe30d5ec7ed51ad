//! The `unsafe` code of this crate. It makes a process that waits before its first instruction, and reaps with resource usage. It also
//! decides which signals of the commands, which have the same uid, affect PID 1 and the guest.
//!
//! `std::process` cannot make a child that stops between fork and exec until it is let run, so this module does it.
//!
//! Rule for [`child`]: it runs in a fork of a process with several threads. So it calls only async-signal-safe functions and does not
//! allocate. Everything that needs memory is prepared in [`Plan`] before the fork.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;
use std::{io, mem, ptr};

use seccompiler::BpfProgram;

mod prefork;

pub(crate) use prefork::Prefork;

/// Everything that a command needs, usable without another allocation.
pub(crate) struct Plan {
    /// Path of the program, absolute or relative to `cwd`.
    pub(crate) program: CString,
    /// Arguments, with the program's name first.
    pub(crate) args: Vec<CString>,
    /// Complete environment, as `NAME=value`.
    pub(crate) env: Vec<CString>,
    pub(crate) cwd: OwnedFd,
    /// True if the command waits for [`Spawned::go`] before exec.
    pub(crate) wait: bool,
    /// The command's end of a terminal, for all three standard streams and to control its session. Without it the command gets pipes.
    pub(crate) terminal: Option<OwnedFd>,
    /// Standard input, instead of the terminal.
    pub(crate) stdin: Option<OwnedFd>,
}

/// A command that was made. If `go` is dropped without a byte, a waiting child exits.
pub(crate) struct Spawned {
    pub(crate) pid: i32,
    /// The guest's ends of the standard streams, unless they are a terminal.
    pub(crate) pipes: Option<Pipes>,
    /// One byte here lets the command run. Only present if it waits.
    pub(crate) go: Option<OwnedFd>,
    /// At its end of file the program runs. Four bytes mean that it does not, and are the errno.
    pub(crate) fault: OwnedFd,
}

/// The guest's ends of a command's standard streams.
pub(crate) struct Pipes {
    /// Write end of the command's standard input.
    pub(crate) stdin: OwnedFd,
    /// Read end of the command's standard output.
    pub(crate) stdout: OwnedFd,
    /// Read end of the command's standard error.
    pub(crate) stderr: OwnedFd,
}

/// The exit of a process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    /// Exit code, unless a signal ended the process.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// CPU time of the process and of its children that were waited for.
    pub(crate) cpu: Duration,
    /// Peak resident memory of the largest of them, in bytes.
    pub(crate) peak_memory: u64,
}

/// Data for the child, as plain numbers and pointers.
struct Raw {
    program: *const c_char,
    /// The arguments, with space for one pointer before them.
    argv: *mut *const c_char,
    envp: *const *const c_char,
    cwd: RawFd,
    stdio: [RawFd; 3],
    /// True if they are a terminal, which will control the session.
    terminal: bool,
    go: RawFd,
    fault: RawFd,
    /// Ranges of descriptors to close, so that the child holds none of the guest's while it waits.
    close: [(u32, u32); 3],
}

/// Number of signals in Linux.
const SIGNALS: c_int = 64;
/// Program that runs a text file without `#!`.
const SHELL: &CStr = c"/bin/sh";
/// Exit code of a child that did not start its program.
const NOT_STARTED: c_int = 127;

/// Forks the command, and installs `filters` in it in this order.
pub(crate) fn spawn(plan: &Plan, filters: &[BpfProgram]) -> io::Result<Spawned> {
    // The child's ends stay open until it has its copies.
    let (stdio, _ends, pipes) = if let Some(terminal) = &plan.terminal {
        let terminal = terminal.as_raw_fd();
        ([plan.stdin.as_ref().map_or(terminal, AsRawFd::as_raw_fd), terminal, terminal], None, None)
    } else {
        let (ends, ours) = pipes()?;
        (ends.each_ref().map(AsRawFd::as_raw_fd), Some(ends), Some(ours))
    };
    let (fault, fault_child) = sockets()?;
    let (go_child, go) =
        if plan.wait { pipe().map(|(read, write)| (Some(read), Some(write)))? } else { (None, None) };

    let mut argv = pointers(&plan.args);
    argv.insert(0, ptr::null());
    let envp = pointers(&plan.env);
    let go_fd = go_child.as_ref().map_or(-1, AsRawFd::as_raw_fd);
    let raw = Raw {
        program: plan.program.as_ptr(),
        // SAFETY: the vector has at least this many elements.
        argv: unsafe { argv.as_mut_ptr().add(1) },
        envp: envp.as_ptr(),
        cwd: plan.cwd.as_raw_fd(),
        stdio,
        terminal: plan.terminal.is_some(),
        go: go_fd,
        fault: fault_child.as_raw_fd(),
        close: gaps(go_fd, fault_child.as_raw_fd()),
    };

    // Block all signals. A handler of the guest in the child would write to descriptors that both share.
    let before = block_all();
    // SAFETY: the child only ever runs `child`, which keeps to async-signal-safe calls and never returns; the memory that `raw` points to
    // is alive in it, as a copy.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        child(&raw, filters);
    }
    let error = io::Error::last_os_error();
    set_mask(&before);
    if pid < 0 {
        return Err(error);
    }
    Ok(Spawned { pid, pipes, go, fault })
}

/// Runs the child between fork and exec. Must not allocate, lock or panic.
fn child(raw: &Raw, filters: &[BpfProgram]) -> ! {
    // SAFETY: plain system calls on numbers and on pointers that `spawn` keeps alive; none of them touches memory
    // that another thread of the parent may have left half-changed.
    unsafe {
        own_session(raw.stdio, raw.terminal, raw.fault);
        if libc::fchdir(raw.cwd) < 0 {
            fail(raw.fault);
        }
        confine(raw.close, filters, raw.fault);
        if raw.go >= 0 {
            let mut byte = 0_u8;
            loop {
                match libc::read(raw.go, (&raw mut byte).cast(), 1) {
                    1 => break,
                    -1 if *libc::__errno_location() == libc::EINTR => {}
                    _ => libc::_exit(NOT_STARTED),
                }
            }
        }
        execute(raw.program, raw.argv, raw.envp);
        fail(raw.fault);
    }
}

/// Executes the program. Runs text without `#!` with `sh`, as `execvp(3)` does. Returns only if that fails.
///
/// # Safety
/// The strings are alive, and `argv` has space for one pointer before it.
unsafe fn execute(program: *const c_char, argv: *mut *const c_char, envp: *const *const c_char) {
    // SAFETY: the caller keeps the strings alive and has the space.
    unsafe {
        libc::execve(program, argv, envp);
        if *libc::__errno_location() == libc::ENOEXEC {
            let argv = argv.sub(1);
            *argv = SHELL.as_ptr();
            *argv.add(1) = program;
            libc::execve(SHELL.as_ptr(), argv, envp);
            *libc::__errno_location() = libc::ENOEXEC;
        }
    }
}

/// Begins a new session, which ends with the guest, with default signals and the given standard streams.
///
/// # Safety
/// Only in a child between fork and exec; the descriptors are open.
unsafe fn own_session(stdio: [RawFd; 3], terminal: bool, fault: RawFd) {
    // SAFETY: plain system calls on numbers and locals.
    unsafe {
        libc::setsid();
        // A guest that is killed takes the command with it. A guest that ends in order ends its commands itself.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        set_actions(libc::SIG_DFL);
        // The daemon raises the guest's priority. Its commands get the normal one.
        libc::setpriority(libc::PRIO_PROCESS, 0, 0);
        for (wanted, fd) in (0..).zip(stdio) {
            if libc::dup2(fd, wanted) < 0 {
                fail(fault);
            }
        }
        if terminal && libc::ioctl(1, libc::TIOCSCTTY, 0) < 0 {
            fail(fault);
        }
    }
}

/// Takes from the child everything of the guest that it must not keep: descriptors, signal mask, system calls.
///
/// # Safety
/// Only in a child between fork and exec; `filters` are alive.
unsafe fn confine(close: [(u32, u32); 3], filters: &[BpfProgram], fault: RawFd) {
    // SAFETY: plain system calls on numbers and locals, and on programs that the caller keeps alive.
    unsafe {
        libc::umask(0o022);
        for (first, last) in close {
            if first <= last {
                // On a kernel without this call, close-on-exec does the same at exec.
                libc::syscall(libc::SYS_close_range, first, last, 0);
            }
        }
        let mut none: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        for filter in filters {
            // Two system calls, no allocation on success.
            if seccompiler::apply_filter(filter).is_err() {
                fail(fault);
            }
        }
    }
}

/// Reports errno to the parent and exits.
fn fail(fault: RawFd) -> ! {
    // SAFETY: writes four bytes of a local and ends this process.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(fault, (&raw const errno).cast(), size_of::<c_int>());
        libc::_exit(NOT_STARTED)
    }
}

/// Returns the ranges of all descriptors above standard error, except two, one of which may be -1.
///
/// The working directory's descriptor is in them, because the child has already entered that directory.
fn gaps(a: RawFd, b: RawFd) -> [(u32, u32); 3] {
    let at = |fd: RawFd| u32::try_from(fd).unwrap_or(2);
    let (low, high) = (at(a.min(b)), at(a.max(b)));
    [(3, low.saturating_sub(1)), (low + 1, high.saturating_sub(1)), (high + 1, u32::MAX)]
}

/// Returns a null-terminated array of pointers into `strings`, valid while they are.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// Makes a pipe for each standard stream. Returns the child's ends, and the guest's ends.
fn pipes() -> io::Result<([OwnedFd; 3], Pipes)> {
    let (stdin_child, stdin) = pipe()?;
    let (stdout, stdout_child) = pipe()?;
    let (stderr, stderr_child) = pipe()?;
    Ok(([stdin_child, stdout_child, stderr_child], Pipes { stdin, stdout, stderr }))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    Ok((above_stdio(read)?, above_stdio(write)?))
}

/// Makes a socket pair instead of a pipe, because in gVisor other commands can open a pipe through `/proc`.
fn sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (unix, stream) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
    let (read, write) = rustix::net::socketpair(unix, stream, rustix::net::SocketFlags::CLOEXEC, None)?;
    Ok((above_stdio(read)?, above_stdio(write)?))
}

/// Moves a descriptor above 2. The child puts its standard streams at 0 to 2, which would overwrite a source there before its use.
pub(crate) fn above_stdio(fd: OwnedFd) -> io::Result<OwnedFd> {
    above(fd, 2)
}

/// Moves a descriptor above a number.
pub(crate) fn above(fd: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() > number {
        return Ok(fd);
    }
    // SAFETY: the descriptor is open, and only this function owns the result if it is not negative.
    let moved = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, number + 1) };
    if moved < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

/// Returns true if the other end of a stream socket has read everything that was written to this one.
pub(crate) fn is_read(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut unread: c_int = 0;
    // SAFETY: the descriptor is open, and the kernel writes one integer.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    if asked < 0 { Err(io::Error::last_os_error()) } else { Ok(unread == 0) }
}

/// Moves a descriptor to a number that no other descriptor in this process may have.
pub(crate) fn at(fd: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    if fd.as_raw_fd() == number {
        return Ok(fd);
    }
    // SAFETY: the descriptor is open, and the caller has nothing else at the number.
    let moved = unsafe { libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) };
    if moved < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: only this function owns the result.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

fn block_all() -> libc::sigset_t {
    // SAFETY: both sets are local and initialised by the calls.
    unsafe {
        let (mut all, mut before) = (mem::zeroed(), mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn set_mask(mask: &libc::sigset_t) {
    // SAFETY: the set was made by `block_all`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Limits the C library to one heap for all threads. By default it makes one for each thread, and keeps the peak memory of each.
///
/// Must be called before there is a second thread.
pub(crate) fn one_heap() {
    // SAFETY: sets a number of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Returns freed memory to the system, which the C library would otherwise keep.
pub(crate) fn give_memory_back() {
    // SAFETY: takes the allocator's own locks and touches nothing that is in use.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Reaps one child that has ended, if there is one. Returns its process id and its exit.
pub(crate) fn reap() -> Option<(i32, Exit)> {
    // SAFETY: both out-parameters are local; zeroes are a valid value of `rusage`.
    let (pid, status, usage) = unsafe {
        let mut status = 0;
        let mut usage: libc::rusage = mem::zeroed();
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage);
        (pid, status, usage)
    };
    if pid <= 0 {
        return None;
    }
    let exited = libc::WIFEXITED(status);
    let exit = Exit {
        code: exited.then(|| libc::WEXITSTATUS(status)),
        signal: (!exited).then(|| libc::WTERMSIG(status)),
        cpu: duration(usage.ru_utime) + duration(usage.ru_stime),
        // Linux counts in KiB.
        peak_memory: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
    };
    Some((pid, exit))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Sets the action of every signal that the kernel lets a process handle. Async-signal-safe.
///
/// It includes the signals that the C library reserves and refuses in its own function.
fn set_actions(action: libc::sighandler_t) {
    for signal in 1..=SIGNALS {
        let action = [action as u64, 0, 0, 0];
        // SAFETY: the kernel reads from the local only the fields of its `struct sigaction`: handler, flags, on some processors a restorer,
        // and a mask of eight bytes. The handler is SIG_DFL or SIG_IGN and no function.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const action, 0, size_of::<u64>());
        }
    }
}

/// Makes the guest ignore all signals that a command can send, except SIGKILL and SIGSTOP, which cannot be ignored.
///
/// Must be called before there are threads. A real fault still ends the guest.
pub(crate) fn ignore_signals() {
    set_actions(libc::SIG_IGN);
    // If it were ignored, the kernel would discard the exits of children.
    // SAFETY: sets the default action of one signal.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// The blocked signal SIGCHLD, for which PID 1 waits.
pub(crate) struct ChildSignal(libc::sigset_t);

impl ChildSignal {
    /// Makes this process ignore all signals of commands, if it is the first of its pid namespace.
    ///
    /// The kernel drops every signal to that process for which it has no handler, including SIGKILL and SIGSTOP from inside. So it must not
    /// have any handler, not even those that the standard library installs. It must not end itself at a signal "from outside" either: if
    /// the queue of signals is full, which a command can arrange, the kernel reports every sender as pid 0.
    ///
    /// SIGCHLD is blocked, so that none is lost between two waits.
    pub(crate) fn begin() -> Self {
        set_actions(libc::SIG_DFL);
        // SAFETY: the set is local and initialised by the first call.
        unsafe {
            let mut set = mem::zeroed();
            libc::sigemptyset(&raw mut set);
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
            Self(set)
        }
    }

    /// Waits until a child may have ended.
    pub(crate) fn wait(&self) {
        // SAFETY: the set was initialised by `begin`; the information about the signal is not asked for. A failure is an interruption,
        // after which a check of the children does no harm.
        unsafe { libc::sigwaitinfo(&raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::gaps;
    use crate::children::{Kernel, filters};

    #[test]
    fn all_but_the_kept_descriptors_are_closed() {
        assert_eq!(gaps(9, 5), [(3, 4), (6, 8), (10, u32::MAX)]);
        assert_eq!(gaps(3, 4), [(3, 2), (4, 3), (5, u32::MAX)]);
        assert_eq!(gaps(-1, 7), [(3, 1), (3, 6), (8, u32::MAX)]);
    }

    #[test]
    fn v3_clone3_does_not_exist_for_commands() {
        let filtered = std::thread::spawn(|| {
            for program in filters(Kernel::Own).unwrap() {
                seccompiler::apply_filter(&program).unwrap();
            }
            // SAFETY: without a structure the kernel makes no process, whether the filter lets the call through or not.
            let made = unsafe { libc::syscall(libc::SYS_clone3, std::ptr::null::<u8>(), 0) };
            (made, std::io::Error::last_os_error().raw_os_error())
        });
        assert_eq!(filtered.join().unwrap(), (-1, Some(libc::ENOSYS)));
    }
}
