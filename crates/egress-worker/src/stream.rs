//! The two connections as streams of bytes, with or without TLS.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use hyper::rt::ReadBufCursor;
use rustix::net::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use crate::connection::Connection;
use crate::fault::Fault;
use crate::meter::From;
use crate::splice::with_buffer;

/// A stream with or without TLS.
pub(crate) enum Stream<P, T> {
    Plain(P),
    Tls(Box<T>),
}

/// The side of the program.
pub(crate) type ProgramStream = Stream<Raw, server::TlsStream<Raw>>;
/// The side of the server.
pub(crate) type ServerStream = Stream<Counted, client::TlsStream<Counted>>;

/// The socket of the program. Bytes that were looked at before come first.
#[derive(Debug)]
pub(crate) struct Raw {
    connection: Rc<Connection>,
    early: Vec<u8>,
    given: usize,
}

impl Raw {
    pub(crate) fn new(connection: Rc<Connection>, early: Vec<u8>) -> Self {
        Self { connection, early, given: 0 }
    }
}

/// The socket of the server. All of its bytes are counted, and none beyond the bound is sent.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) stream: TcpStream,
    connection: Rc<Connection>,
    fault: Rc<Fault>,
}

impl Counted {
    pub(crate) fn new(stream: TcpStream, connection: Rc<Connection>, fault: Rc<Fault>) -> Self {
        Self { stream, connection, fault }
    }

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

impl AsyncRead for Raw {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let early = this.early.get(this.given..).unwrap_or_default();
        if early.is_empty() {
            return poll_read(&this.connection.program, cx, buffer);
        }
        let early = early.get(..early.len().min(buffer.remaining())).unwrap_or_default();
        buffer.put_slice(early);
        this.given += early.len();
        if this.given == this.early.len() {
            this.early = Vec::new();
            this.given = 0;
        }
        Poll::Ready(Ok(()))
    }
}

/// The socket of the program is closed by `close` alone, which lets the program read the last bytes.
impl AsyncWrite for Raw {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll_write(&self.connection.program, cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
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

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(poll_read(&self.stream, cx, buffer))?;
        Poll::Ready(self.count(From::Server, buffer.filled().len() - before))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_send(cx, bytes.len(), |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
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
        Poll::Ready(shutdown(&self.stream, Shutdown::Write).map_err(Into::into))
    }
}

impl<P: AsyncRead + Unpin, T: AsyncRead + Unpin> AsyncRead for Stream<P, T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl<P: AsyncWrite + Unpin, T: AsyncWrite + Unpin> AsyncWrite for Stream<P, T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A stream as hyper reads and writes it.
pub(crate) struct Hyper<S> {
    pub(crate) stream: S,
    /// True if an end without the word of TLS is an end like any other. Many programs leave so; their requests have lengths.
    may_end_early: bool,
}

impl<P, T> Hyper<Stream<P, T>> {
    /// Takes the side of a program.
    pub(crate) fn program(stream: Stream<P, T>) -> Self {
        Self { stream, may_end_early: true }
    }

    /// Takes the side of a server. A response without a length must not be cut.
    pub(crate) fn server(stream: Stream<P, T>) -> Self {
        Self { stream, may_end_early: false }
    }
}

impl<S: AsyncRead + Unpin> hyper::rt::Read for Hyper<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        with_buffer(|buffer| {
            let most = buffer.len().min(cursor.remaining());
            let mut buffer = ReadBuf::new(buffer.get_mut(..most).unwrap_or_default());
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Err(error) if self.may_end_early && error.kind() == io::ErrorKind::UnexpectedEof => {}
                read => read?,
            }
            cursor.put_slice(buffer.filled());
            Poll::Ready(Ok(()))
        })
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Hyper<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Reads into a buffer. It must have space.
fn poll_read(stream: &TcpStream, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        match stream.try_read(buffer.initialize_unfilled()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
            Ok(read) => {
                buffer.advance(read);
                return Poll::Ready(Ok(()));
            }
        }
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
