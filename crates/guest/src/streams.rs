//! The two ends of the frame stream: standard input and output, moved to other descriptors.
//!
//! tokio's own standard streams use an extra thread, so pipes are used directly instead. Descriptors 0 and 1 are then `/dev/null`, so that
//! no accidental output can look like a frame.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, fstat};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// Lowest number of a moved descriptor.
const ABOVE_STDIO: i32 = 3;

/// Source of frames.
pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Takes over descriptors 0 and 1. Must be called inside the runtime, and only once.
pub(crate) fn take() -> io::Result<(Input, Output)> {
    let input = input(moved(io::stdin().as_fd())?)?;
    let output = output(moved(io::stdout().as_fd())?)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    Ok((input, output))
}

/// Returns both directions of a socket. Must be called inside the runtime.
pub(crate) fn through(stream: std::os::unix::net::UnixStream) -> io::Result<(Input, Output)> {
    let (input, output) = socket(stream.into())?.into_split();
    Ok((Box::new(input), Box::new(output)))
}

fn moved(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(fcntl_dupfd_cloexec(fd, ABOVE_STDIO)?)
}

/// Returns a reader for a pipe or a socket.
pub(crate) fn input(fd: OwnedFd) -> io::Result<Input> {
    if is_socket(&fd)? { Ok(Box::new(socket(fd)?)) } else { Ok(Box::new(pipe::Receiver::from_owned_fd(fd)?)) }
}

fn output(fd: OwnedFd) -> io::Result<Output> {
    if is_socket(&fd)? { Ok(Box::new(socket(fd)?)) } else { Ok(Box::new(pipe::Sender::from_owned_fd(fd)?)) }
}

fn is_socket(fd: &OwnedFd) -> io::Result<bool> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::Socket)
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(fd);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}
