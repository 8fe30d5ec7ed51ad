//! The program's side as hyper reads it: only well-formed requests go through.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::io::{AsyncRead as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};
use tokio::time::{Sleep, sleep};
use wire::worker::v1::connection_ended::Cause;

use super::gate::Gate;
use crate::connection::SLOW;
use crate::fault::Fault;
use crate::splice::with_buffer;
use crate::stream::ProgramStream;

/// Bytes that are no head. Hyper answers them with status 400, after the responses that are due.
const NO_HEAD: &[u8] = b"\0\r\n\r\n";
/// Most bytes that are read at once of a connection over HTTP.
const READ: usize = 16 * 1024;

/// The side of the program.
pub(super) struct Program {
    stream: ProgramStream,
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
    pub(super) fn new(stream: ProgramStream, fault: Rc<Fault>) -> Self {
        let slow = Some(Box::pin(sleep(SLOW)));
        Self { stream, fault, gate: Gate::default(), through: Vec::new(), given: 0, is_over: false, slow }
    }

    /// Returns the stream, and the bytes that hyper has not read.
    pub(super) fn into_rest(self) -> (ProgramStream, Vec<u8>) {
        let through = self.through.get(self.given..).unwrap_or_default();
        let rest = [through, &self.gate.into_held()].concat();
        (self.stream, rest)
    }

    /// Writes the last bytes, and says in TLS that they are.
    pub(super) async fn end(&mut self, bytes: &[u8]) {
        // A program that has left reads nothing.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.shutdown().await;
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

    /// Reads from the program. Returns how many bytes there were, and the gate's opinion of them.
    fn poll_through(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(usize, Result<(), Cause>)>> {
        let (stream, gate, through) = (&mut self.stream, &mut self.gate, &mut self.through);
        with_buffer(|buffer| {
            // Not more than hyper takes at once, which waits for the server.
            let most = buffer.len().min(READ);
            let mut buffer = ReadBuf::new(buffer.get_mut(..most).unwrap_or_default());
            match Pin::new(stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) => {
                    let read = buffer.filled();
                    Poll::Ready(Ok((read.len(), gate.push(read, through))))
                }
                // Many programs end TLS without a word. Hyper knows whether a request is incomplete.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Poll::Ready(Ok((0, Ok(()))))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            }
        })
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
            match this.poll_through(cx)? {
                Poll::Pending => {
                    this.poll_slow(cx)?;
                    return Poll::Pending;
                }
                // The end. Hyper knows whether a request is incomplete.
                Poll::Ready((0, _)) => return Poll::Ready(Ok(())),
                Poll::Ready((_, Ok(()))) => {}
                Poll::Ready((_, Err(Cause::Malformed))) if this.gate.is_within_head() => {
                    this.fault.malformed.set(true);
                    this.through.extend_from_slice(NO_HEAD);
                    this.is_over = true;
                }
                Poll::Ready((_, Err(cause))) => return Poll::Ready(Err(this.fault.error(cause))),
            }
            if !this.through.is_empty() {
                this.slow = None;
            }
        }
    }
}

impl Write for Program {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
