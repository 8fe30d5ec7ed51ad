//! The connection of a request.

use std::net::IpAddr;
use std::sync::Arc;

use admission::Slot;

use crate::access::Certificate;

/// The connection of a request.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) address: IpAddr,
    pub(crate) certificate: Option<Certificate>,
    /// Slot of the connection, which is proven when a session is shown.
    pub(crate) slot: Arc<Slot>,
}
