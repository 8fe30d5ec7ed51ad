//! One connection: looked at, connected, and its bytes passed.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use wire::worker::v1::connection_ended::Cause;
use wire::worker::v1::from_egress::Body;
use wire::worker::v1::{ConnectionEnded, ConnectionReady};
use worker_protocol::address::octets;

use crate::channel::Channel;
use crate::client_hello::{Collector, Hello};
use crate::dial::{Attempt, dial};
use crate::meter::Meter;
use crate::orders::{Dial, Inspect, Orders};
use crate::process::Process;
use crate::splice::{Early, splice, with_buffer};

/// Time within which the beginning of a connection must be there.
pub(crate) const SLOW: Duration = Duration::from_secs(10);

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) process: Rc<Process>,
    pub(crate) channel: Rc<Channel>,
    pub(crate) id: u64,
    pub(crate) orders: Rc<Orders>,
    /// The side of the program.
    pub(crate) program: TcpStream,
    /// Address that the program meant.
    pub(crate) destination: SocketAddr,
    pub(crate) meter: Meter,
    pub(crate) attempt: Attempt,
    pub(crate) posts: Posts,
}

/// Messages about a connection from places that cannot wait.
#[derive(Debug, Default)]
pub(crate) struct Posts {
    waiting: RefCell<VecDeque<Body>>,
    posted: Notify,
}

impl Connection {
    /// Looks for the ClientHello if a rule for TLS is given, connects, and passes the bytes.
    pub(crate) async fn pass(&self, inspect: Option<&Inspect>) -> Result<(), Cause> {
        let mut early = Early::default();
        if let Some(inspect) = inspect {
            let looked = timeout(SLOW, self.client_hello(&inspect.name));
            let (hello, bytes) = looked.await.map_err(|_| Cause::Slow)??;
            early.to_server = bytes;
            let ready = ConnectionReady {
                server_name: hello.server_name,
                request: None,
                encrypted_client_hello: hello.has_encrypted,
            };
            self.say(Body::Connection(ready)).await;
        }
        let server = if inspect.is_some() {
            match self.connect_for_program().await? {
                Some(server) => server,
                None => return Ok(()),
            }
        } else {
            tokio::select! {
                server = self.connect() => server?,
                () = self.broken() => return Err(Cause::Reset),
            }
        };
        self.meter.touch();
        tokio::select! {
            passed = splice(&self.program, &server, &self.meter, early) => passed,
            () = self.meter.idle() => Err(Cause::Idle),
        }
    }

    /// Waits for the addresses, and connects.
    async fn connect(&self) -> Result<TcpStream, Cause> {
        let addresses = self.orders.addresses().await?;
        self.dial(&addresses).await
    }

    /// Connects. From then on, the bytes of the connection are reported while it is open.
    pub(crate) async fn dial(&self, addresses: &Dial) -> Result<TcpStream, Cause> {
        let server = dial(addresses, &self.attempt).await?;
        self.meter.report_as(self.id);
        Ok(server)
    }

    /// Waits for the addresses, and connects. `None` if the program leaves before.
    pub(crate) async fn connect_for_program(&self) -> Result<Option<TcpStream>, Cause> {
        tokio::select! {
            server = self.connect() => server.map(Some),
            () = self.left() => Ok(None),
            () = self.broken() => Err(Cause::Reset),
        }
    }

    /// Reads until the ClientHello is there. Returns its facts, and all bytes that were read. Its server name in the clear is `name`.
    pub(crate) async fn client_hello(&self, name: &str) -> Result<(Hello, Vec<u8>), Cause> {
        let mut collector = Collector::default();
        loop {
            self.program.readable().await.map_err(|_| Cause::Reset)?;
            let found = with_buffer(|buffer| {
                let most = buffer.len().min(collector.remaining());
                match self.program.try_read(buffer.get_mut(..most).unwrap_or_default()) {
                    Ok(0) => Err(if collector.is_empty() { Cause::Closed } else { Cause::WrongScheme }),
                    Ok(read) => collector.push(buffer.get(..read).unwrap_or_default()),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(None),
                    Err(_) => Err(Cause::Reset),
                }
            })?;
            let Some(hello) = found else { continue };
            // For an address that a rule names, there must be no name.
            if !hello.server_name.eq_ignore_ascii_case(name) {
                return Err(Cause::WrongServerName);
            }
            return Ok((hello, collector.into_bytes()));
        }
    }

    /// Waits until the program has left.
    ///
    /// A program that has sent something and then closed its side may still wait for an answer. It counts as there.
    pub(crate) async fn left(&self) {
        let mut byte = [0];
        loop {
            match self.program.peek(&mut byte).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            self.broken().await;
        }
    }

    /// Waits until the connection of the program has an error.
    pub(crate) async fn broken(&self) {
        while self.program.ready(Interest::ERROR).await.is_ok_and(|ready| !ready.is_error()) {}
    }

    /// Sends a message about this connection.
    pub(crate) async fn say(&self, body: Body) {
        self.channel.send(self.id, body).await;
    }

    /// Notes a message about this connection, which [`Self::deliver`] or the end of the connection sends.
    pub(crate) fn post(&self, body: Body) {
        self.posts.waiting.borrow_mut().push_back(body);
        self.posts.posted.notify_one();
    }

    /// Sends the messages that were noted, for as long as the connection is served.
    pub(crate) async fn deliver(&self) -> Infallible {
        loop {
            self.deliver_waiting().await;
            self.posts.posted.notified().await;
        }
    }

    async fn deliver_waiting(&self) {
        loop {
            // It waits until it is sent, in case that this is interrupted.
            let Some(body) = self.posts.waiting.borrow().front().cloned() else { return };
            self.say(body).await;
            self.posts.waiting.borrow_mut().pop_front();
        }
    }

    /// Closes the connection and reports its end.
    pub(crate) async fn finish(self: Rc<Self>, cause: Cause) {
        self.deliver_waiting().await;
        let ended = ConnectionEnded {
            cause: cause.into(),
            bytes_out: self.meter.sent(),
            bytes_in: self.meter.received(),
            address: self.attempt.address.get().map(octets).unwrap_or_default(),
            errno: self.attempt.errno.get(),
        };
        let (channel, id) = (Rc::clone(&self.channel), self.id);
        if cause != Cause::Closed {
            let _ = self.program.set_zero_linger();
        }
        drop(self);
        channel.close(id);
        channel.send(id, Body::Ended(ended)).await;
    }
}
