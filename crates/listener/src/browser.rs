//! Makes the peers of the web console: browsers, which the guard knows as clients over TCP.

use std::net::IpAddr;
use std::sync::Arc;

use admission::{ShareLimits, Shares};

use crate::{Certificates, Peer, Remote, Subject};

/// The browsers of a console. They have shares apart from those of the clients of the API.
pub struct Browsers {
    certificates: Option<Arc<Certificates>>,
    connections: Shares,
}

impl Browsers {
    /// Requests of one principal, and of one address, have these limits.
    pub fn new(certificates: Option<Arc<Certificates>>, limits: ShareLimits) -> Self {
        Self { certificates, connections: Shares::new(limits) }
    }

    /// Returns the peer of one request. `certificate` is the one with which its session was opened.
    pub fn peer(&self, address: IpAddr, certificate: Option<Subject>) -> Peer {
        let (certificates, connections) = (self.certificates.clone(), self.connections.clone());
        Peer::Remote(Arc::new(Remote::new(address, certificate, true, certificates, connections)))
    }
}
