//! Connections at their begin.

use std::net::SocketAddr;

use tokio::net::TcpStream;

/// A connection that has just begun.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) program: TcpStream,
    /// Address that the program meant. Unspecified if the daemon has the connection's host.
    pub(crate) destination: SocketAddr,
    /// Number of the handle that it is, if the daemon has opened it; 0 otherwise.
    pub(crate) handle: u64,
}
