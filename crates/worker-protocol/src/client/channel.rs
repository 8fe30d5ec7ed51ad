//! A direct channel to a worker: a Unix stream socket that the worker made. It has one hop instead of the engine's five.
//!
//! Trust boundary: the worker keeps its end, and may keep a copy of the daemon's end as well. Both share the open file, so its flags cannot
//! be relied on. Every call states itself that it must not block. Descriptors that the worker sends along are never accepted (`recv`
//! without control data drops them).

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::sockopt::{socket_acceptconn, socket_domain, socket_type};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketType, recv, send, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::UnixStream;

/// The daemon's end. It must be made inside a runtime.
#[derive(Debug)]
pub struct Channel(Arc<UnixStream>);

/// Reading half of the channel.
pub(super) struct Incoming(Arc<UnixStream>);

/// Writing half of the channel. Dropping it closes the channel.
pub(super) struct Outgoing(Arc<UnixStream>);

/// Writing half for frames that can be sent at once. Dropping it does not close the channel.
#[derive(Debug)]
pub(super) struct Now(Arc<UnixStream>);

impl Now {
    /// Sends as many bytes as the socket takes without waiting, and returns their number.
    pub(super) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        send_now(&self.0, bytes)
    }
}

fn send_now(socket: &UnixStream, bytes: &[u8]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    socket.try_io(Interest::WRITABLE, || Ok(send(socket, bytes, flags)?))
}

impl Channel {
    /// Wraps the descriptor if it is a connected Unix stream socket.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let stream = socket_domain(&fd)? == AddressFamily::UNIX
            && socket_type(&fd)? == SocketType::STREAM
            && !socket_acceptconn(&fd)?
            && rustix::net::getpeername(&fd)?.is_some();
        if !stream {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a connected Unix stream socket"));
        }
        let socket = std::os::unix::net::UnixStream::from(fd);
        socket.set_nonblocking(true)?;
        Ok(Self(Arc::new(UnixStream::from_std(socket)?)))
    }

    pub(super) fn split(self) -> (Outgoing, Incoming) {
        (Outgoing(Arc::clone(&self.0)), Incoming(self.0))
    }
}

impl Outgoing {
    /// Returns a second writing half, for frames before which no other frame waits.
    pub(super) fn now(&self) -> Now {
        Now(Arc::clone(&self.0))
    }
}

impl AsyncRead for Incoming {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            let space = buffer.initialize_unfilled();
            let mut last = None;
            let received = self.0.try_io(Interest::READABLE, || {
                let (_, count) = recv(&*self.0, &mut *space, RecvFlags::DONTWAIT)?;
                if (1..space.len()).contains(&count) {
                    // The socket is empty now. Telling the runtime so saves a system call.
                    last = Some(count);
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(count)
            });
            match last.map_or(received, Ok) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Outgoing {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match send_now(&self.0, bytes) {
                Err(error) if is_passing(&error) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ = shutdown(&*self.0, Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

/// Returns true if the socket was not ready after all, or if a signal came. The caller waits again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        // Both directions, even if others hold a copy: the worker ends, and the reader here sees the end.
        let _ = shutdown(&*self.0, Shutdown::Both);
    }
}
