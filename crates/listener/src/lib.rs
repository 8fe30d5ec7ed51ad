#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod authority;
mod browser;
mod coalesce;
mod connection;
mod ending;
mod expiry;
mod frames;
mod guard;
mod revoked;
mod strength;
mod subject;
mod tcp;
mod tls;
mod tokens;
mod unix;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use admission::{CurrentShare, Owner, Purpose, Shares};
use futures_util::{Stream, StreamExt as _, stream};
use identity::Principal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

pub use browser::Browsers;
pub use connection::Connection;
pub use expiry::{CertificateEnd, Remaining};
pub use guard::GuardLayer;
pub use subject::Subject;
pub use tcp::{Settings, Tcp};
pub use tls::{Certificates, Files, Replacement};
pub use tokens::Tokens;
pub use unix::Socket;

/// Maximum size of one frame of HTTP/2, bytes. The server of the API accepts no longer ones.
pub const MAX_FRAME: u32 = 256 * 1024;
/// Time between a failed attempt to accept and the next.
const AGAIN: Duration = Duration::from_millis(100);
/// Maximum number of TCP connections that are ready and not yet served.
const READY: usize = 16;

/// Client of a connection.
#[derive(Debug, Clone)]
pub enum Peer {
    /// Client of the Unix socket, as the kernel reports it, unix(7) `SO_PEERCRED`.
    Local {
        uid: u32,
        gid: u32,
    },
    Remote(Arc<Remote>),
}

impl Peer {
    /// Returns the address of a client over TCP.
    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Local { .. } => None,
            Self::Remote(remote) => Some(remote.address),
        }
    }

    /// Returns true for a client over TCP whose connection is in a spare slot.
    fn is_spare(&self) -> bool {
        matches!(self, Self::Remote(remote) if remote.is_spare)
    }
}

/// A client over TCP.
#[derive(Debug)]
pub struct Remote {
    pub address: IpAddr,
    /// Subject of its verified certificate.
    pub certificate: Option<Subject>,
    /// True if this listener accepts tokens.
    pub takes_tokens: bool,
    /// Certificates in force, if the listener has TLS.
    certificates: Option<Arc<Certificates>>,
    /// True if the connection is beyond the limits of its address or of the listener. It opens the check of health alone, and ends soon.
    is_spare: bool,
    /// Owner of the connection: the subject of its certificate, later the last credential with which a request was
    /// admitted.
    share: CurrentShare,
}

impl Remote {
    fn new(
        address: IpAddr,
        certificate: Option<Subject>,
        takes_tokens: bool,
        certificates: Option<Arc<Certificates>>,
        connections: Shares,
    ) -> Self {
        let share = CurrentShare::none_of(connections);
        let remote = Self { address, certificate, takes_tokens, certificates, is_spare: false, share };
        if let Some(shown) = &remote.certificate {
            // If the subject has too many connections, a request on this one is refused for that reason.
            let owner = Owner::Principal(Principal::name_of_certificate(&shown.name));
            let _ = remote.belongs_to(vec![owner], Purpose::Other);
        }
        remote
    }

    /// Returns the address in the form in which it is counted.
    pub fn network(&self) -> IpAddr {
        admission::network(self.address)
    }

    /// Completes when its certificate is revoked, at once if it is revoked already.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        let shown =
            self.certificates.clone().zip(self.certificate.as_ref().map(|subject| subject.shown.clone()));
        async move {
            match shown {
                Some((certificates, shown)) => certificates.revoked(&shown).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Returns true if its certificate is revoked.
    pub fn is_revoked(&self) -> bool {
        let shown = self.certificates.as_ref().zip(self.certificate.as_ref());
        shown.is_some_and(|(certificates, subject)| certificates.is_revoked(&subject.shown))
    }

    /// Counts the connection for these owners from now on.
    ///
    /// Fails with the owner that has as many connections as it may. The connection then keeps its previous owners. If
    /// it has none, it loses its slot.
    pub fn belongs_to(&self, mut owners: Vec<Owner>, purpose: Purpose) -> Result<(), Owner> {
        if owners.iter().any(|owner| matches!(owner, Owner::RunToken(_))) {
            owners.push(Owner::RunTokensAt(self.network()));
        }
        self.share.belongs_to(owners, purpose)
    }

    fn is_somebodys(&self) -> bool {
        self.share.is_somebodys()
    }
}

/// Returns the connections of all listeners, until `stop`. It ends a moment later, when handshakes that were under way have ended.
pub fn incoming(
    socket: Socket,
    tcp: Option<Tcp>,
    stop: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let local = stream::unfold(socket, |socket| async move { Some((socket.accept().await, socket)) });
    let local = local.take_until(stop.clone().cancelled_owned());
    let (ready, remote) = mpsc::channel(READY);
    if let Some(tcp) = tcp {
        tokio::spawn(tcp.run(ready, stop));
    }
    stream::select(Box::pin(local), ReceiverStream::new(remote))
}
