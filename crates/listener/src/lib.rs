#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod authority;
mod coalesce;
mod connection;
mod ending;
mod frames;
mod guard;
mod revoked;
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
use futures_util::{Stream, stream};
use identity::Principal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

pub use connection::Connection;
pub use guard::GuardLayer;
pub use subject::Subject;
pub use tcp::{Settings, Tcp};
pub use tls::{Certificates, Files};
pub use tokens::{Tokens, now};
pub use unix::Socket;

/// Between attempts to accept after one that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// Connections over TCP that are ready and not yet served.
const READY: usize = 16;

/// Who connected.
#[derive(Debug, Clone)]
pub enum Peer {
    /// By the Unix socket, as the kernel says, unix(7) `SO_PEERCRED`.
    Local {
        uid: u32,
        gid: u32,
    },
    Remote(Arc<Remote>),
}

impl Peer {
    /// Returns the address that a client over TCP has.
    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Local { .. } => None,
            Self::Remote(remote) => Some(remote.address),
        }
    }
}

/// A client over TCP.
#[derive(Debug)]
pub struct Remote {
    pub address: IpAddr,
    /// The subject of its verified certificate.
    pub certificate: Option<Subject>,
    /// Whether tokens count on this listener.
    pub takes_tokens: bool,
    /// Those in force, where there is TLS.
    certificates: Option<Arc<Certificates>>,
    /// Its certificate's subject, and after that the last credential with which a request was let in.
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
        let remote = Self { address, certificate, takes_tokens, certificates, share };
        if let Some(shown) = &remote.certificate {
            // With too many it may still say so, to a request.
            let owner = Owner::Principal(Principal::name_of_certificate(&shown.name));
            let _ = remote.belongs_to(vec![owner], Purpose::Other);
        }
        remote
    }

    /// The address as it is counted.
    pub fn network(&self) -> IpAddr {
        admission::network(self.address)
    }

    /// Comes when its certificate is revoked, at once if it is.
    pub fn revoked(&self) -> impl Future<Output = ()> + Send + use<> {
        let shown = self.certificates.clone().zip(self.certificate.as_ref().map(|shown| shown.fingerprint));
        async move {
            match shown {
                Some((certificates, fingerprint)) => certificates.revoked(fingerprint).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Whether its certificate is revoked.
    pub fn is_revoked(&self) -> bool {
        let shown = self.certificates.as_ref().zip(self.certificate.as_ref());
        shown.is_some_and(|(certificates, shown)| certificates.is_revoked(shown.fingerprint))
    }

    /// Counts the connection for these owners from now on. If one of them has as many as it may, which is the error, the connection
    /// stays whose it was: one without an owner loses its place.
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

/// The connections of all listeners, until `stop`.
pub fn incoming(
    socket: Socket,
    tcp: Option<Tcp>,
    stop: CancellationToken,
) -> impl Stream<Item = io::Result<Connection>> {
    let local = stream::unfold(socket, |socket| async move { Some((socket.accept().await, socket)) });
    let (ready, remote) = mpsc::channel(READY);
    if let Some(tcp) = tcp {
        tokio::spawn(tcp.run(ready, stop));
    }
    stream::select(Box::pin(local), ReceiverStream::new(remote))
}
