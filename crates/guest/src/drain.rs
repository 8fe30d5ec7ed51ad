//! The reader of a command's pipes, for the processes that the command left running.
//!
//! A process whose pipe has no reader is killed by its next line of output (SIGPIPE), and one whose pipe is full waits for
//! ever. So a separate process reads what they write and drops it, until the last of them is gone. It is in their cgroup:
//! it is frozen and ended with them, and outlives the guest, as they do.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};

/// A reader that waits.
pub(crate) struct Drain {
    pub(crate) pid: u32,
    /// It begins when this is closed, be it by the end of the guest.
    _gate: OwnedFd,
}

/// Starts the reader of these pipes. It ignores the signals that the guest ignores.
pub(crate) fn start([stdout, stderr]: [OwnedFd; 2]) -> io::Result<Drain> {
    let (waits, gate) = pipe_with(PipeFlags::CLOEXEC)?;
    // Reaped like every other child of the guest.
    let child = Command::new("/proc/self/exe")
        .arg("drain")
        .env_clear()
        .stdin(Stdio::from(stdout))
        .stdout(Stdio::from(stderr))
        .stderr(Stdio::from(waits))
        .spawn()?;
    Ok(Drain { pid: child.id(), _gate: gate })
}

/// The reader itself: what was given as standard input and output are the pipes, and standard error is the gate.
pub(crate) fn run() -> ExitCode {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let mut chunk = [0; 16 * 1024];
    while !is_over(read(stderr.as_fd(), &mut chunk)) {}
    let mut open: Vec<BorrowedFd<'_>> = vec![stdin.as_fd(), stdout.as_fd()];
    while !open.is_empty() {
        let mut fds: Vec<_> = open.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return ExitCode::FAILURE,
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        open.retain(|fd| !(ready.next() == Some(true) && is_over(read(*fd, &mut chunk))));
    }
    ExitCode::SUCCESS
}

/// Returns whether the pipe has nothing more to read: it is at its end, or broken.
fn is_over(read: Result<usize, Errno>) -> bool {
    match read {
        Ok(bytes) => bytes == 0,
        Err(errno) => !matches!(errno, Errno::INTR | Errno::AGAIN),
    }
}
