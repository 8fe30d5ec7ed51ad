//! The TCP listener: a place for each connection, then TLS, bounded in time.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::{Addresses, ConnectionLimits, Place, ShareLimits, Shares};
use calls::{Attempt, Escalations};
use identity::Principal;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::connection::{Connection, Hold};
use super::{AGAIN, Certificates, Peer, Remote, Subject};

/// What a bad certificate aims at, for the record.
const TARGET: &str = "TLS";

/// How it listens, and how much of it there may be.
#[derive(Debug, Clone)]
pub struct Settings {
    pub address: SocketAddr,
    /// Whether tokens count.
    pub takes_tokens: bool,
    pub connections: usize,
    pub connections_per_address: usize,
    pub connections_per_principal: usize,
    /// New connections of one address.
    pub connections_per_second: u32,
    /// Until TLS is set up.
    pub handshake_timeout: Duration,
}

/// A bound TCP listener.
pub struct Tcp {
    listener: TcpListener,
    addresses: Addresses,
    door: Arc<Door>,
}

/// What a connection has to pass.
struct Door {
    /// `None`: plain, on this host alone.
    certificates: Option<Arc<Certificates>>,
    takes_tokens: bool,
    timeout: Duration,
    /// The connections of each credential.
    connections: Shares,
    escalations: Arc<Escalations>,
}

impl Tcp {
    pub async fn bind(
        settings: &Settings,
        certificates: Option<Arc<Certificates>>,
        escalations: Arc<Escalations>,
    ) -> io::Result<Self> {
        let limits = ConnectionLimits {
            connections: settings.connections,
            per_address: settings.connections_per_address,
            per_second: settings.connections_per_second,
        };
        let (takes_tokens, timeout) = (settings.takes_tokens, settings.handshake_timeout);
        let connections = Shares::new(ShareLimits {
            per_principal: settings.connections_per_principal,
            per_address: settings.connections_per_address,
        });
        Ok(Self {
            listener: TcpListener::bind(settings.address).await?,
            addresses: Addresses::new(limits),
            door: Arc::new(Door { certificates, takes_tokens, timeout, connections, escalations }),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Hands on each connection that has passed, until `stop` or until nobody takes them.
    pub(super) async fn run(self, ready: mpsc::Sender<io::Result<Connection>>, stop: CancellationToken) {
        // Those that are still at the door end with this.
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
            let Some(place) = self.addresses.enter(address, Instant::now()) else {
                // Other work goes first: a flood is turned away with the processor time that is left.
                drop(stream);
                tokio::task::yield_now().await;
                continue;
            };
            let (door, ready) = (self.door.clone(), ready.clone());
            entering.spawn(async move {
                let evicted = place.evicted();
                let connection = tokio::select! {
                    connection = door.pass(stream, address, place) => connection,
                    () = evicted => None,
                };
                if let Some(connection) = connection {
                    // The receiver is gone: the daemon stops.
                    let _ = ready.send(Ok(connection)).await;
                }
            });
        }
    }
}

impl Door {
    async fn pass(&self, stream: TcpStream, address: IpAddr, place: Place) -> Option<Connection> {
        // An answer is sent in one piece: nothing is gained by waiting for more.
        stream.set_nodelay(true).ok()?;
        let Some(certificates) = &self.certificates else {
            let remote = Remote::new(address, None, self.takes_tokens, None, self.connections.clone());
            let stream = Either::Right(Either::Left(stream));
            return Some(Connection::new(stream, Peer::Remote(Arc::new(remote)), Hold::Remote(place)));
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
        let certificates = Some(certificates.clone());
        let remote =
            Remote::new(address, certificate, self.takes_tokens, certificates, self.connections.clone());
        let stream = Either::Right(Either::Right(Box::new(stream)));
        Some(Connection::new(stream, Peer::Remote(Arc::new(remote)), Hold::Remote(place)))
    }

    /// Whom the client's certificate names, where it has shown one; `None` for one that names nobody, or is revoked.
    #[expect(clippy::option_option, reason = "no certificate is one thing, and one of nobody another")]
    fn certificate(
        &self,
        certificates: &Certificates,
        address: IpAddr,
        stream: &TlsStream<TcpStream>,
    ) -> Option<Option<Subject>> {
        let Some(shown) = stream.get_ref().1.peer_certificates().and_then(<[_]>::first) else {
            return Some(None);
        };
        let is_in_force = |subject: &Subject| !certificates.is_revoked(subject.fingerprint);
        let subject = Subject::of(shown).filter(is_in_force);
        if subject.is_none() {
            self.report(address);
        }
        subject.map(Some)
    }

    /// A handshake that failed. Only a client certificate that does not count is an attempt to get in.
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
