#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod advertisement;
mod body;
mod error;
mod fetch;
mod head;
mod negotiation;
mod pack;
mod packets;
mod push;
mod refs;
mod refspec;
mod report;
mod server;
mod shallow;
mod stream;
mod url;

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

pub use advertisement::{Advertised, RemoteRef};
pub use error::RemoteError;
pub use fetch::fetch;
pub use push::{Outcome, RefOutcome, Update, push};
pub use refs::{Fetched, RefUpdate, Rejected};
pub use refspec::{BadRefspec, Refspec};
pub use url::{BadUrl, RemoteUrl};

/// Opens streams to the server of one operation.
pub trait Dial {
    /// Opens a stream whose other end expects plain HTTP/1.1, and does TLS with the server. The error is shown to an agent.
    fn dial(&self, host: &str, port: u16) -> io::Result<UnixStream>;
}

impl<F: Fn(&str, u16) -> io::Result<UnixStream>> Dial for F {
    fn dial(&self, host: &str, port: u16) -> io::Result<UnixStream> {
        self(host, port)
    }
}

/// Bounds of one operation.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most bytes that are received, of all responses together.
    pub max_bytes: u64,
    /// End of the operation.
    pub deadline: Instant,
    /// Most refs that a server may list.
    pub max_refs: u32,
}

/// Returns the refs of a repository, as its server lists them for a fetch.
pub fn list(url: &RemoteUrl, dial: &dyn Dial, bounds: Bounds) -> Result<Advertised, RemoteError> {
    server::Server::new(url, dial, bounds).discover(git_wire::Service::UploadPack)
}
