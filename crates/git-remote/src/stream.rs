//! One stream to a server, within the time and the bytes of its operation.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read, write};

use crate::Bounds;
use crate::error::RemoteError;

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;

/// The bounds of one operation, and what is used of them.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) bounds: Bounds,
    received: Cell<u64>,
}

impl Budget {
    pub(crate) fn new(bounds: Bounds) -> Rc<Self> {
        Rc::new(Self { bounds, received: Cell::new(0) })
    }

    /// Returns the bytes that were received.
    pub(crate) fn received(&self) -> u64 {
        self.received.get()
    }

    fn receive(&self, bytes: usize) -> Result<(), RemoteError> {
        self.received.set(self.received.get().saturating_add(bytes as u64));
        let most = self.bounds.max_bytes;
        if self.received.get() > most { Err(RemoteError::TooMuch(most)) } else { Ok(()) }
    }
}

/// A stream. It waits with poll(2), so that no peer can hold it beyond the deadline.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: OwnedFd,
    budget: Rc<Budget>,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were taken.
    taken: usize,
}

impl Stream {
    pub(crate) fn new(socket: UnixStream, budget: Rc<Budget>) -> Result<Self, RemoteError> {
        let socket = OwnedFd::from(socket);
        // By fcntl, because a confined process may not use ioctl.
        let flags = fcntl_getfl(&socket).map_err(failed)?;
        fcntl_setfl(&socket, flags | OFlags::NONBLOCK).map_err(failed)?;
        Ok(Self { socket, budget, buffer: Vec::new(), taken: 0 })
    }

    /// Returns the bytes that were read and not taken.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.buffer.get(self.taken..).unwrap_or_default()
    }

    /// Takes bytes that were read.
    pub(crate) fn take(&mut self, count: usize) {
        self.taken = self.buffer.len().min(self.taken + count);
    }

    /// Reads some more bytes. Returns false at the end of the stream.
    pub(crate) fn fill(&mut self) -> Result<bool, RemoteError> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        let before = self.buffer.len();
        loop {
            self.buffer.resize(before + PIECE, 0);
            let got = read(&self.socket, self.buffer.get_mut(before..).unwrap_or_default());
            self.buffer.truncate(before + got.unwrap_or(0));
            match got {
                Ok(0) | Err(Errno::CONNRESET) => return Ok(false),
                Ok(count) => {
                    self.budget.receive(count)?;
                    return Ok(true);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN)?,
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    /// Writes all bytes. Returns false if the other side takes no more.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<bool, RemoteError> {
        while !bytes.is_empty() {
            match write(&self.socket, bytes) {
                Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(true)
    }

    /// Returns true if nothing was received that no request asked for, not even the end of the stream.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::IN)];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.bytes().is_empty() && matches!(poll(&mut polled, Some(&zero)), Ok(0))
    }

    fn wait(&self, events: PollFlags) -> Result<(), RemoteError> {
        let left = self.budget.bounds.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(RemoteError::TimedOut);
        }
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), events)];
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) => Err(RemoteError::TimedOut),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn failed(errno: Errno) -> RemoteError {
    RemoteError::Io(io::Error::from(errno))
}
