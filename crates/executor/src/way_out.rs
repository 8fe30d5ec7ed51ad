//! Streams to servers for calls in the host lane.
//!
//! The process of such a call asks over a socket of its own ([`host_launch::dialing`]). The call's task here answers with a stream of the
//! run's egress, or with the reason why there is none. The socket ends with the call.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixDatagram as StdDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use host_launch::dialing::{Wish, answer};
use host_launch::numbered;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::{sleep, timeout};

/// Time in which a host worker receives a handle, and the pause before another attempt.
const TIME: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(5);
/// Most streams of one call. One that needs more is no fetch and no push.
const STREAMS: usize = 16;
/// The reason of a run without egress.
pub(crate) const NONE: &str = "this run's profile has no `egress` rules, so nothing of it reaches a server";

/// The egress of a run.
pub trait WayOut: Send + Sync + 'static {
    /// Opens a stream to a server for a call. The other end expects plain HTTP/1.1. The error is shown to an agent.
    fn open<'a>(
        &'a self,
        call: &'a str,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, Result<OwnedFd, String>>;
}

/// The way of handles to a host worker.
#[derive(Debug)]
pub(crate) struct Handles {
    socket: OwnedFd,
    last: AtomicU64,
}

impl Handles {
    /// Takes the daemon's end of the pair that the host worker was started with.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, last: AtomicU64::new(0) }
    }

    /// Sends a handle, and returns the number that the message of its call has.
    pub(crate) async fn send(&self, handle: OwnedFd) -> io::Result<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let sent = async {
            loop {
                match numbered::send(&self.socket, number, handle.as_fd()) {
                    // The host worker receives them with the next message of a call.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => sleep(AGAIN).await,
                    sent => return sent,
                }
            }
        };
        timeout(TIME, sent).await??;
        Ok(number)
    }
}

/// Gives streams to the process of a call, for as long as it has the other end of `socket`.
///
/// A process that asks for something else gets nothing more.
pub async fn give_streams(socket: OwnedFd, way_out: Option<Arc<dyn WayOut>>, call: String) {
    if let Err(error) = give(socket, way_out, &call).await {
        tracing::warn!(call, %error, "the process of a call gets no more streams to servers");
    }
}

async fn give(socket: OwnedFd, way_out: Option<Arc<dyn WayOut>>, call: &str) -> io::Result<()> {
    // Of the kind `SOCK_SEQPACKET`, which keeps messages apart as datagrams are.
    let socket = UnixDatagram::from_std(StdDatagram::from(socket))?;
    for _ in 0..STREAMS {
        let wish = loop {
            socket.readable().await?;
            match socket.try_io(Interest::READABLE, || Wish::receive(&socket)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                wish => break wish?,
            }
        };
        let Some(Wish { host, port }) = wish else { return Ok(()) };
        let stream = match &way_out {
            Some(way_out) => way_out.open(call, &host, port).await,
            None => Err(NONE.to_owned()),
        };
        // There is one answer at a time, for which the socket has space.
        answer(&socket, stream.as_ref().map(AsFd::as_fd).map_err(String::as_str))?;
    }
    Ok(())
}
