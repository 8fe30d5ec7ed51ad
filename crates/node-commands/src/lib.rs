#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod drain;
mod show;
mod watch;

use clap::Subcommand;
use command_context::client::Context;
use presentation::failure::{Ended, Failure};
use wire::v1;

/// A command of `coffer node`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Show(show::Show),
    Watch(watch::Watch),
    Drain(drain::Drain),
    Undrain(drain::Undrain),
}

impl Command {
    /// Executes the command.
    pub async fn run(self, context: &Context) -> Ended {
        match self {
            Self::Show(show) => show.run(context).await,
            Self::Watch(watch) => watch.run(context).await,
            Self::Drain(drain) => drain.run(context).await,
            Self::Undrain(undrain) => undrain.run(context).await,
        }
    }
}

/// Returns the node of an answer.
fn present(node: Option<v1::Node>) -> Result<v1::Node, Failure> {
    node.ok_or_else(|| Failure::failed("the daemon answered without a node"))
}
