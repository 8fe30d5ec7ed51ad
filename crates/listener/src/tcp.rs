//! Listens on TCP: gives each connection a slot, then sets up TLS within a time limit.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Addresses, ConnectionLimits, ShareLimits, Shares, Slot};
use audit_service::{Attempt, Escalations};
use identity::Principal;
use rustix::process::setpriority_process;
use rustix::thread::gettid;
use take_over::Listeners;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Hold};
use super::{AGAIN, Certificates, Peer, Remote, Subject};

/// Name of the socket among the daemon's listeners.
const NAME: &str = "api-tcp";
/// Target that the record of a bad certificate names.
const TARGET: &str = "TLS";

/// Connections of an address beyond its limits, for checks of health by the holder of a certificate.
const SPARE: u32 = 8;

/// Time for handshakes that are under way when the listener stops. Usual ones take milliseconds.
const FINISH: Duration = Duration::from_secs(1);

/// Address and limits of the listener.
#[derive(Debug, Clone)]
pub struct Settings {
    pub address: SocketAddr,
    /// True if tokens are accepted.
    /// Maximum number of new connections of one address in a second.
    /// Time that a client has to set up TLS.
    pub takes_tokens: bool,
    pub connections: usize,
    pub connections_per_address: usize,
    pub connections_per_principal: usize,
    pub connections_per_second: u32,
    pub handshake_timeout: Duration,
}

/// A bound TCP listener.
pub struct Tcp {
    listener: TcpListener,
    handshakes: Handshakes,
    addresses: Addresses,
    door: Arc<Door>,
}

/// The thread that sets up TLS.
///
/// It has less priority than the threads that serve: a handshake takes a thousand times the processor time of its client's bytes, so
/// many at once must not delay the calls of those that are connected.
struct Handshakes {
    handle: Handle,
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
}

/// Niceness of the thread that sets up TLS: a third of an ordinary thread's share of a busy processor.
const NICENESS: i32 = 5;

impl Handshakes {
    fn start() -> io::Result<Self> {
        let lower_priority = || {
            if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
                tracing::debug!(%error, "the priority of the TLS handshake thread could not be lowered");
            }
        };
        let mut runtime = Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).thread_name("tls-handshakes").on_thread_start(lower_priority);
        let runtime = runtime.enable_time().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // An ordinary drop waits for the thread, and panics in a task.
            runtime.shutdown_background();
        }
    }
}

/// Checks that a connection has to pass.
struct Door {
    /// Certificates; `None` for plaintext on a loopback address.
    certificates: Option<Arc<Certificates>>,
    takes_tokens: bool,
    timeout: Duration,
    /// Connections of each credential.
    connections: Shares,
    escalations: Arc<Escalations>,
}

impl Tcp {
    pub async fn bind(
        settings: &Settings,
        certificates: Option<Arc<Certificates>>,
        escalations: Arc<Escalations>,
        listeners: &Listeners,
    ) -> io::Result<Self> {
        let limits = ConnectionLimits {
            connections: settings.connections,
            per_address: settings.connections_per_address,
            per_second: settings.connections_per_second,
            spare: if certificates.is_some() { SPARE } else { 0 },
        };
        let (takes_tokens, timeout) = (settings.takes_tokens, settings.handshake_timeout);
        let connections = Shares::new(ShareLimits {
            per_principal: settings.connections_per_principal,
            per_address: settings.connections_per_address,
        });
        Ok(Self {
            listener: listeners.tcp(NAME, settings.address).await?,
            handshakes: Handshakes::start()?,
            addresses: Addresses::new(limits),
            door: Arc::new(Door { certificates, takes_tokens, timeout, connections, escalations }),
        })
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Sends each connection that has passed the checks to `ready`, until `stop`. Those that are being checked by then still have [`FINISH`].
    pub(super) async fn run(self, ready: mpsc::Sender<io::Result<Connection>>, stop: CancellationToken) {
        let mut entering = JoinSet::new();
        while let Some(accepted) = stop.run_until_cancelled(self.listener.accept()).await {
            while entering.try_join_next().is_some() {}
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            let address = address.ip().to_canonical();
            let Some(slot) = self.addresses.enter(address, Instant::now()) else {
                // Other work goes first: a flood of connections gets only the processor time that is left.
                drop(stream);
                tokio::task::yield_now().await;
                continue;
            };
            let (door, ready) = (self.door.clone(), ready.clone());
            let entered = async move {
                let evicted = slot.evicted();
                let connection = tokio::select! {
                    connection = door.pass(stream, address, slot) => connection,
                    () = evicted => None,
                };
                if let Some(connection) = connection {
                    // An error means that the receiver is gone, because the daemon stops.
                    let _ = ready.send(Ok(connection)).await;
                }
            };
            entering.spawn_on(entered, &self.handshakes.handle);
        }
        finish(entering).await;
    }
}

/// Waits for the connections that are being checked, and ends those that take too long.
///
/// A client whose handshake completes is told to connect anew, as HTTP/2 has it. A client of one that was cut fails to connect, and has sent
/// no request.
async fn finish(mut entering: JoinSet<()>) {
    let finished = async { while entering.join_next().await.is_some() {} };
    if tokio::time::timeout(FINISH, finished).await.is_err() {
        tracing::debug!(cut = entering.len(), "TLS handshakes were cut, as the daemon stops");
    }
}

impl Door {
    async fn pass(&self, stream: TcpStream, address: IpAddr, slot: Slot) -> Option<Connection> {
        // An answer is sent in one piece, so waiting for more bytes gains nothing.
        stream.set_nodelay(true).ok()?;
        let Some(certificates) = &self.certificates else {
            let remote = Remote::new(address, None, self.takes_tokens, None, self.connections.clone());
            let stream = Either::Right(Either::Left(stream));
            return Some(Connection::new(stream, Peer::Remote(Arc::new(remote)), Hold::Remote(slot)));
        };
        let acceptor = TlsAcceptor::from(certificates.config());
        let stream = match tokio::time::timeout(self.timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                self.refused(address, &error);
                return None;
            }
            Err(_) => return None,
        };
        let certificate = self.certificate(certificates, address, &stream)?;
        let is_spare = slot.is_spare();
        if is_spare && certificate.is_none() {
            return None;
        }
        let certificates = Some(certificates.clone());
        let connections = self.connections.clone();
        let remote = Remote::new(address, certificate, self.takes_tokens, certificates, connections);
        let remote = Remote { is_spare, ..remote };
        let stream = Either::Right(Either::Right(Box::new(stream)));
        Some(Connection::new(stream, Peer::Remote(Arc::new(remote)), Hold::Remote(slot)))
    }

    /// Returns the subject of the client's certificate, or `Some(None)` if the client has presented none.
    ///
    /// Returns `None` for a certificate that names no holder, or that is revoked.
    #[expect(clippy::option_option, reason = "a missing certificate differs from one that names no holder")]
    fn certificate(
        &self,
        certificates: &Certificates,
        address: IpAddr,
        stream: &TlsStream<TcpStream>,
    ) -> Option<Option<Subject>> {
        let Some(shown) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) else {
            return Some(None);
        };
        let is_in_force = |subject: &Subject| !certificates.is_revoked(&subject.shown);
        let subject = Subject::of(shown).filter(is_in_force);
        if subject.is_none() {
            self.report(address);
        }
        subject.map(Some)
    }

    /// Reports a failed handshake. Only a client certificate that is not valid is an attempt to get in.
    fn refused(&self, address: IpAddr, error: &io::Error) {
        use rustls::Error::{InvalidCertificate, NoCertificatesPresented};
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
        if matches!(cause, Some(InvalidCertificate(_) | NoCertificatesPresented)) {
            self.report(address);
        }
        tracing::debug!(%address, %error, "a TLS handshake failed");
    }

    fn report(&self, address: IpAddr) {
        let client = Principal { address: Some(address), ..Principal::anonymous() };
        self.escalations.report(&client, None, Attempt::BadCertificate, TARGET);
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn handshakes_under_way_at_a_stop_end_within_a_bound() {
        let mut entering = JoinSet::new();
        let (ready, mut handed) = mpsc::channel(1);
        entering.spawn(async move {
            tokio::time::sleep(FINISH / 2).await;
            ready.send(()).await.unwrap();
        });
        let (alive, cut) = oneshot::channel::<()>();
        entering.spawn(async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        let begun = tokio::time::Instant::now();
        finish(entering).await;
        assert!((FINISH..2 * FINISH).contains(&begun.elapsed()));
        assert_eq!(handed.recv().await, Some(()), "one that takes no longer is served");
        assert!(cut.await.is_err(), "one that does is ended");
        let begun = tokio::time::Instant::now();
        finish(JoinSet::new()).await;
        assert!(begun.elapsed() < FINISH / 2, "nothing is waited for");
    }
}
