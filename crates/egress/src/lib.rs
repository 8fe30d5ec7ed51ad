#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

mod ask;
mod broken;
mod cause;
mod decide;
mod events;
mod fingerprint;
mod git;
mod grants;
mod hosts_file;
mod java;
mod limits;
mod live;
mod messages;
mod metering;
mod outgoing;
mod outside;
mod refused;
mod roots;
mod route;
mod session;
mod start;
mod table;
mod trust;
mod upstream;
mod view;
mod waiting;

#[cfg(test)]
mod testing;

pub use fingerprint::Fingerprint;
pub use outside::{Outside, Shared};
pub use roots::Roots;
pub use start::{Egress, Program, Setup, StartError};
pub use trust::Trust;
pub use upstream::UpstreamProxy;
pub use view::{Connection, Counts, ModelTokens, Phase, Refused, Request, Update, View};
pub use waiting::{Answer, Question};

use std::sync::Arc;

use audit::Event;
use egress_rules::Narrowed;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// The parts of the daemon that a run's connections need.
pub trait Control: Send + Sync + 'static {
    /// Returns the rules in force for the run.
    fn rules(&self) -> Arc<Narrowed>;

    /// Puts an event of the run on record. Returns false if the log does not take it.
    fn record(&self, event: Event) -> BoxFuture<'_, bool>;

    /// Puts a process of the host and its children below the run's limits of memory and processor time, in the background.
    fn share_limits(&self, pid: u32);

    /// Returns the ids of the calls whose commands are running.
    fn calls(&self) -> Vec<String>;

    /// Returns for each pair of commits of the run's repository, an old and a new one, if the first is an ancestor of the second.
    ///
    /// `None` is an unknown answer.
    fn ancestry(&self, pairs: Vec<(String, String)>) -> BoxFuture<'_, Vec<Option<bool>>>;

    /// Asks reviewers about a connection that waits. Ends soon after `given_up`, when no connection waits any longer.
    fn ask(&self, question: Question, given_up: CancellationToken) -> BoxFuture<'_, Answer>;
}
