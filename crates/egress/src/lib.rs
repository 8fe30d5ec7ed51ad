#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

mod ask;
mod ask_push;
mod broken;
mod bytes;
mod cause;
mod companion;
mod consents;
mod decide;
mod events;
mod fingerprint;
mod git;
mod grants;
mod handles;
mod hosts_file;
mod java;
mod limits;
mod live;
mod messages;
mod metering;
mod moved;
mod outgoing;
mod outside;
mod push_question;
mod refused;
mod roots;
mod route;
mod serve;
mod session;
mod start;
mod streams;
mod table;
mod trust;
mod upstream;
mod view;
mod waiting;

#[cfg(test)]
mod metering_tests;
#[cfg(test)]
mod testing;

pub use bytes::Bytes;
pub use fingerprint::Fingerprint;
pub use git_wire::Change;
pub use outside::{Outside, Shared};
pub use push_question::{PushQuestion, PushUpdate};
pub use roots::Roots;
pub use start::{Egress, Program, Setup, StartError, TaskSetup};
pub use streams::StreamError;
pub use trust::{Trust, chromium_policy};
pub use upstream::UpstreamProxy;
pub use view::{Connection, Counts, ModelTokens, Phase, Refused, Request, Update, View};
pub use waiting::{Answer, Question};

use std::os::fd::OwnedFd;
use std::sync::Arc;

use audit::Event;
use egress_rules::{HostName, Narrowed};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

/// The parts of the daemon that a run's connections need.
pub trait Control: Send + Sync + 'static {
    /// Returns the rules in force for the run, or for the companion whose connections these are.
    fn rules(&self) -> Arc<Narrowed>;

    /// Returns the rules of the run, whose budget and whose bound for bytes count for its companions, too.
    fn rules_of_run(&self) -> Arc<Narrowed> {
        self.rules()
    }

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

    /// Returns the reason for which the run's companion of this name takes no connection at a port, or that it takes one. `None` if
    /// there is no such companion. The reason is for the agent.
    fn companion(&self, name: &HostName, port: u16) -> Option<Result<(), String>> {
        let _ = (name, port);
        None
    }

    /// Connects to a companion. The reason of a failure is for the agent.
    fn connect(&self, name: &HostName, port: u16) -> BoxFuture<'_, Result<OwnedFd, String>> {
        let why = format!("there is no companion {name} with a port {port}");
        Box::pin(std::future::ready(Err(why)))
    }

    /// Asks reviewers about a connection or a push that waits. Ends soon after `given_up`, when no program waits any longer.
    fn ask(&self, question: Question, given_up: CancellationToken) -> BoxFuture<'_, Answer>;
}
