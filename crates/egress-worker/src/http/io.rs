//! The two connections as hyper reads and writes them.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Sleep, sleep};
use wire::worker::v1::connection_ended::Cause;

use super::gate::Gate;
use crate::connection::{Connection, SLOW};
use crate::meter::From;
use crate::splice::with_buffer;

/// Bytes that are no head. Hyper answers them with status 400, after the responses that are due.
const NO_HEAD: &[u8] = b"\0\r\n\r\n";

/// The first cause for which a connection has to end at once.
#[derive(Debug, Default)]
pub(super) struct Fault {
    cause: Cell<Option<Cause>>,
    set: Notify,
    /// Set after a malformed head, which hyper answers.
    pub(super) malformed: Cell<bool>,
}

impl Fault {
    pub(super) fn set(&self, cause: Cause) {
        if self.cause.get().is_none() {
            self.cause.set(Some(cause));
            self.set.notify_waiters();
        }
    }

    pub(super) fn get(&self) -> Option<Cause> {
        self.cause.get()
    }

    pub(super) async fn wait(&self) -> Cause {
        loop {
            let set = self.set.notified();
            if let Some(cause) = self.get() {
                return cause;
            }
            set.await;
        }
    }

    fn error(&self, cause: Cause) -> io::Error {
        self.set(cause);
        io::ErrorKind::InvalidData.into()
    }
}

/// The side of the program: only well-formed requests go through.
pub(super) struct Program {
    connection: Rc<Connection>,
    fault: Rc<Fault>,
    gate: Gate,
    through: Vec<u8>,
    given: usize,
    /// Set after a malformed head.
    is_over: bool,
    /// End of the time for a head. There is none between two requests.
    slow: Option<Pin<Box<Sleep>>>,
}

impl Program {
    pub(super) fn new(connection: Rc<Connection>, fault: Rc<Fault>) -> Self {
        let slow = Some(Box::pin(sleep(SLOW)));
        Self { connection, fault, gate: Gate::default(), through: Vec::new(), given: 0, is_over: false, slow }
    }

    /// Returns the bytes that hyper has not read.
    pub(super) fn into_rest(self) -> Vec<u8> {
        let through = self.through.get(self.given..).unwrap_or_default();
        [through, &self.gate.into_held()].concat()
    }

    /// Gives bytes to hyper. Returns false if there are none.
    fn give(&mut self, cursor: &mut ReadBufCursor<'_>) -> bool {
        let rest = self.through.get(self.given..).unwrap_or_default();
        let given = rest.get(..rest.len().min(cursor.remaining())).unwrap_or_default();
        cursor.put_slice(given);
        self.given += given.len();
        let gave = !given.is_empty();
        if self.given == self.through.len() {
            self.through = Vec::new();
            self.given = 0;
        }
        gave
    }

    fn poll_slow(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.gate.is_within_head() && self.slow.is_none() {
            self.slow = Some(Box::pin(sleep(SLOW)));
        }
        match self.slow.as_mut().map(|slow| slow.as_mut().poll(cx)) {
            Some(Poll::Ready(())) => Err(self.fault.error(Cause::Slow)),
            Some(Poll::Pending) | None => Ok(()),
        }
    }
}

impl Read for Program {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if let Some(cause) = this.fault.get() {
                return Poll::Ready(Err(this.fault.error(cause)));
            }
            if this.give(&mut cursor) || cursor.remaining() == 0 || this.is_over {
                return Poll::Ready(Ok(()));
            }
            if this.connection.program.poll_read_ready(cx)?.is_pending() {
                this.poll_slow(cx)?;
                return Poll::Pending;
            }
            let (program, gate, through) = (&this.connection.program, &mut this.gate, &mut this.through);
            let read = with_buffer(|buffer| {
                // Not more than hyper takes at once, which waits for the server.
                let most = buffer.len().min(READ);
                let read = program.try_read(buffer.get_mut(..most).unwrap_or_default())?;
                let checked = gate.push(buffer.get(..read).unwrap_or_default(), through);
                Ok::<_, io::Error>((read, checked))
            });
            match read {
                // The end. Hyper knows whether a request is incomplete.
                Ok((0, _)) => return Poll::Ready(Ok(())),
                Ok((_, Ok(()))) => {}
                Ok((_, Err(Cause::Malformed))) if this.gate.is_within_head() => {
                    this.fault.malformed.set(true);
                    this.through.extend_from_slice(NO_HEAD);
                    this.is_over = true;
                }
                Ok((_, Err(cause))) => return Poll::Ready(Err(this.fault.error(cause))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            if !this.through.is_empty() {
                this.slow = None;
            }
        }
    }
}

/// Most bytes that are read at once of a connection over HTTP.
const READ: usize = 16 * 1024;

impl Write for Program {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll_write(&self.connection.program, cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        poll_write(&self.connection.program, cx, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The side of the server. All of its bytes are counted, and none beyond the bound is sent.
pub(super) struct Server {
    pub(super) stream: TcpStream,
    pub(super) connection: Rc<Connection>,
    pub(super) fault: Rc<Fault>,
}

impl Server {
    fn count(&self, from: From, bytes: usize) -> io::Result<()> {
        self.connection.meter.count(from, bytes).map_err(|cause| self.fault.error(cause))
    }

    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        bytes: usize,
        write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        self.connection.meter.check(bytes).map_err(|cause| self.fault.error(cause))?;
        let written = ready!(poll_write(&self.stream, cx, write))?;
        Poll::Ready(self.count(From::Program, written).map(|()| written))
    }
}

impl Read for Server {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let read = with_buffer(|buffer| {
                let most = buffer.len().min(cursor.remaining());
                let read = self.stream.try_read(buffer.get_mut(..most).unwrap_or_default())?;
                cursor.put_slice(buffer.get(..read).unwrap_or_default());
                Ok::<_, io::Error>(read)
            });
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.and_then(|read| self.count(From::Server, read))),
            }
        }
    }
}

impl Write for Server {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes.len(), |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.poll_send(cx, bytes, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&self.stream, rustix::net::Shutdown::Write).map_err(Into::into))
    }
}

fn poll_write(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        match write(stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return Poll::Ready(written),
        }
    }
}
