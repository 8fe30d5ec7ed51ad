//! `coffer node drain` and `coffer node undrain`.

use std::time::Duration;

use clap::Args;
use command_context::client::{Context, quick, to_node};
use presentation::failure::{Ended, Failure};
use presentation::time;
use wire::v1::node::State;
use wire::v1::{DrainNodeRequest, Node, UndrainNodeRequest, WatchNodeRequest};

use crate::{present, watch};

/// Take the node out of service: it makes no further runs. For operators.
///
/// Runs that live go on, or are stopped after --deadline. The drain outlives the daemon, until `coffer node undrain`.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer node drain --reason \"a new kernel\" --deadline 30m --wait")]
pub struct Drain {
    /// Reason, which clients read whose runs are refused.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Time after which runs that still live are stopped, such as 30m. Default: they go on.
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    deadline: Option<Duration>,
    /// Return when no run is left.
    #[arg(long)]
    wait: bool,
}

/// Put the node into service again. For operators.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer node undrain")]
pub struct Undrain {}

impl Drain {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let deadline = self.deadline.map(wire::duration);
        let request = DrainNodeRequest { reason: self.reason, deadline };
        let mut node = present(client.node().drain_node(quick(request)).await?.into_inner().node)?;
        if self.wait && node.state() != State::Drained {
            let watching = "waiting for the runs of the node to end";
            // A balancer may lead the next request to another node.
            let request = to_node(WatchNodeRequest {}, node.node_id);
            let ended = async {
                let mut changes = client.node().watch_node(request).await?.into_inner();
                while let Some(change) = changes.message().await? {
                    let node = present(change.node)?;
                    match node.state() {
                        State::Drained => return Ok(node),
                        State::Serving => {
                            return Err(Failure::failed("another operator has undrained the node"));
                        }
                        State::Draining | State::Unspecified => {}
                    }
                }
                Err::<Node, Failure>(Failure::unreachable(
                    "the daemon stopped before the last run had ended; the drain stays",
                ))
            };
            let _spinner = context.ui.spinner(watching);
            node = ended.await?;
        }
        context.ui.answer(node, |node, page| watch::render(&node, page))
    }
}

impl Undrain {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let node = client.node().undrain_node(quick(UndrainNodeRequest {})).await?.into_inner().node;
        context.ui.answer(present(node)?, |node, page| watch::render(&node, page))
    }
}
