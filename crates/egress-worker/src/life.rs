//! The life of one connection, from its first byte to its record.
//!
//! ```text
//! ConnectionOpened ─► Inspect ─► looked at ─► ConnectionReady ─► Dial ─► connected ─► bytes pass ─► ConnectionEnded
//!        │  └──────────────────────────────────────────────────────▲                                      ▲
//!        └────────────── EndConnection, or the program leaves, at any time ──────────────────────────────┘
//! ```
//!
//! A rule for TCP has nothing to look at, so that its addresses come at once. A program that closes its side early may still wait for
//! the server's first words. On a connection whose TLS is ended here, and on one over HTTP, the daemon can be asked about each request
//! (`RequestAsked`). Only while a reviewer decides does it count as gone.
//!
//! A connection that the daemon opened itself (`Serve`) has the same life, over HTTP, with TLS on the way to the server.

use std::net::SocketAddr;
use std::rc::Rc;

use tokio::net::TcpStream;
use wire::worker::v1::ConnectionOpened;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body;
use worker_protocol::address::octets;

use crate::channel::Channel;
use crate::connection::{Connection, Posts};
use crate::dial::Attempt;
use crate::meter::{Bounds, Meter};
use crate::orders::{End, Scheme};
use crate::process::Process;
use crate::{http, opened};

/// A connection that has just begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) program: TcpStream,
    /// Address that the program meant. Unspecified if the daemon has the connection's host.
    pub(crate) destination: SocketAddr,
    /// Number of the handle that it is, if the daemon has opened it; 0 otherwise.
    pub(crate) handle: u64,
}

/// Serves a connection, to its end.
pub(crate) async fn serve(process: Rc<Process>, channel: Rc<Channel>, bounds: Rc<Bounds>, begun: Begun) {
    let Begun { program, destination, handle } = begun;
    let (id, orders) = channel.open();
    let meter = Meter::new(&bounds);
    let attempt = Attempt::default();
    let posts = Posts::default();
    let connection = Connection { process, channel, id, orders, program, destination, meter, attempt, posts };
    let connection = Rc::new(connection);
    let cause = match run(&connection, handle).await {
        Ok(()) => Cause::Closed,
        Err(cause) => cause,
    };
    connection.finish(cause).await;
}

async fn run(connection: &Rc<Connection>, handle: u64) -> Result<(), Cause> {
    // Fails only where the program has left.
    let _ = connection.program.set_nodelay(true);
    let (address, port) = (octets(connection.destination.ip()), connection.destination.port().into());
    connection.say(Body::Opened(ConnectionOpened { address, port, handle })).await;
    let left = async {
        connection.orders.review().await?;
        connection.left().await;
        Ok::<_, End>(())
    };
    let inspect = tokio::select! {
        inspect = connection.orders.inspection() => inspect?,
        left = left => return Ok(left?),
    };
    let inspect = match inspect {
        Some(inspect) if inspect.scheme == Scheme::Http => {
            return http::serve(Rc::clone(connection), inspect).await;
        }
        Some(inspect) if inspect.is_opened => return opened::serve(Rc::clone(connection), inspect).await,
        inspect => inspect,
    };
    tokio::select! {
        end = connection.orders.ended() => Err(end.into()),
        passed = connection.pass(inspect.as_ref()) => passed,
    }
}
