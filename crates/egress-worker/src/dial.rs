//! Connects to the addresses that the daemon has checked.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use wire::worker::v1::connection_ended::Cause;

use crate::orders::Dial;
use crate::tunnel::tunnel;

/// Time for all addresses together.
const TIME: Duration = Duration::from_secs(10);

/// Silence after which the kernel asks whether the server is still there, and the time between two such questions.
///
/// A connection may be silent for as long as its programs like. Without this, one to a server that has vanished would keep its slot for
/// good, and devices on the way forget connections that are silent for minutes.
const SILENCE: Duration = Duration::from_secs(60);
const BETWEEN: Duration = Duration::from_secs(15);

/// The last attempt to connect.
#[derive(Debug, Default)]
pub(crate) struct Attempt {
    pub(crate) address: Cell<Option<IpAddr>>,
    /// Error of the operating system; 0 for none.
    pub(crate) errno: Cell<u32>,
}

/// Connects to the first address that answers, in their order, and through it to the server if it is a proxy's. Takes the connection
/// of the daemon instead if there is one.
pub(crate) async fn dial(dial: &Dial, attempt: &Attempt) -> Result<TcpStream, Cause> {
    if let Some(connected) = &dial.connected {
        let stream = connected.take().ok_or(Cause::Unreachable)?;
        settle(&stream).map_err(|_| Cause::Unreachable)?;
        return Ok(stream);
    }
    let end = Instant::now() + TIME;
    let mut left = u32::try_from(dial.addresses.len()).unwrap_or(1);
    for address in &dial.addresses {
        attempt.address.set(Some(*address));
        // An address that does not answer leaves time for the next.
        let time = end.saturating_duration_since(Instant::now()) / left.max(1);
        left = left.saturating_sub(1);
        let connected = timeout(time, connect(SocketAddr::new(*address, dial.port))).await;
        match connected.unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))) {
            Ok(mut stream) => {
                attempt.errno.set(0);
                if let Some(to) = &dial.tunnel {
                    tunnel(&mut stream, to).await?;
                }
                return Ok(stream);
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                attempt.errno.set(errno.unsigned_abs());
            }
        }
    }
    Err(Cause::Unreachable)
}

async fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    let stream = socket.connect(to).await?;
    settle(&stream)?;
    Ok(stream)
}

/// Sets the options of a connection to a server.
fn settle(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_tcp_keepidle(stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(stream, BETWEEN)?;
    sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}
