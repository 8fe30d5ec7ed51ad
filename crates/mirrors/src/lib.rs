#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod address;
mod limits;
mod permission;
mod refresh;
mod table;

pub use address::{BadUrl, RepositoryUrl};
pub use limits::MirrorBounds;
pub use permission::check;
pub use table::Mirrors;

use std::os::fd::OwnedFd;

use futures_util::future::BoxFuture;
use host_launch::{Owner, TreeBounds};
use refusal::Refusal;
use tokio_util::sync::CancellationToken;

/// A clone that a run begins with.
pub struct Wanted<'a> {
    pub url: &'a RepositoryUrl,
    /// Principal of the run.
    pub principal: &'a str,
    /// Branch, tag or full id of a commit; `None` is the server's HEAD.
    pub revision: Option<&'a str>,
    /// Most commits down each line of the history; 0 is all of it.
    pub depth: u32,
    /// Most that the clone may have: its repository and its files.
    pub most: TreeBounds,
    /// The target: an empty directory that the owner may write.
    pub workspace: OwnedFd,
    pub owner: Owner,
    /// Cancelled when the run is stopped. The wait for others and for the server ends then.
    pub stopping: CancellationToken,
}

/// A clone that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cloned {
    /// Id of the commit that is checked out.
    pub commit: String,
}

/// The connections of one fetch. They are judged by the rules of the run, and are on its record.
pub trait WayOut: Send + Sync {
    /// Begins, and returns the socket over which a host worker asks for streams to the server.
    fn begin(&self) -> BoxFuture<'_, Result<OwnedFd, Refusal>>;

    /// Ends all connections. Their receipts are handed to the log before this returns.
    fn end(&self) -> BoxFuture<'_, ()>;
}
