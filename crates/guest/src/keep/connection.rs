//! One stream to a daemon: frames in both directions, without blocking.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use wire::worker::v1::{FromKeeper, ToKeeper, from_keeper::Body};
use worker_protocol::frame::{FrameBuffer, FrameError, encode};

/// Bytes that one read takes.
const READ: usize = 16 * 1024;
/// Waiting bytes below which output is added.
const BUSY: usize = 128 * 1024;

pub(super) struct Connection {
    stream: UnixStream,
    frames: FrameBuffer,
    out: Vec<u8>,
    /// True if the daemon has reported which output it has. Only then may frames be sent to it.
    pub(super) attached: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, frames: FrameBuffer::new(), out: Vec::new(), attached: false }
    }

    /// Reads the available bytes. Returns false at the end of the stream.
    pub(super) fn read(&mut self) -> bool {
        let mut bytes = [0; READ];
        match recv(&self.stream, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => false,
            Ok((_, count)) => {
                self.frames.extend(&bytes[..count.min(READ)]);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => true,
            Err(_) => false,
        }
    }

    /// Returns the next message of the daemon.
    pub(super) fn next(&mut self) -> Result<Option<ToKeeper>, FrameError> {
        self.frames.pop()
    }

    /// Queues a message for the daemon. The next [`Self::send`] sends it.
    pub(super) fn say(&mut self, body: Body) -> io::Result<()> {
        let frame = encode(&FromKeeper { body: Some(body) }).map_err(io::Error::other)?;
        self.out.extend(frame);
        Ok(())
    }

    /// Returns true if output may be added.
    pub(super) fn has_space(&self) -> bool {
        self.attached && self.out.len() < BUSY
    }

    pub(super) fn has_something(&self) -> bool {
        !self.out.is_empty()
    }

    /// Sends as much as the stream accepts. Returns false if the daemon is gone.
    pub(super) fn send(&mut self) -> bool {
        while !self.out.is_empty() {
            match send(&self.stream, &self.out, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => drop(self.out.drain(..count)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
