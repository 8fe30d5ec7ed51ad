//! The reader of a command's pipes, for the processes that the command left running.
//!
//! A process whose pipe has no reader is killed by its next output (SIGPIPE). A process whose pipe is full waits forever. So a separate
//! process reads their output and drops it, until the last of them is gone. It is in their cgroup. So it is frozen and ended with them, and
//! outlives the guest as they do.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read};
use rustix::pipe::{PipeFlags, pipe_with};

/// A reader that waits to begin.
pub(crate) struct Drain {
    pub(crate) pid: u32,
    /// The reader begins when this is closed, even if the guest's end closes it.
    _gate: OwnedFd,
}

/// Starts the reader of these pipes. It ignores the signals that the guest ignores.
pub(crate) fn start([stdout, stderr]: [OwnedFd; 2]) -> io::Result<Drain> {
    let (waits, gate) = pipe_with(PipeFlags::CLOEXEC)?;
    // The guest reaps it like every other child.
    let child = Command::new("/proc/self/exe")
        .arg("drain")
        .env_clear()
        .stdin(Stdio::from(stdout))
        .stdout(Stdio::from(stderr))
        .stderr(Stdio::from(waits))
        .spawn()?;
    Ok(Drain { pid: child.id(), _gate: gate })
}

/// Runs the reader. Standard input and output are the pipes, and standard error is the gate.
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

/// Returns true if the pipe is at its end, or broken.
fn is_over(read: Result<usize, Errno>) -> bool {
    match read {
        Ok(bytes) => bytes == 0,
        Err(errno) => !matches!(errno, Errno::INTR | Errno::AGAIN),
    }
}
