//! `coffer transcript`: tool calls by fenced blocks in a model's text.

mod step;

use clap::Subcommand;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Step(step::Step),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Step(step) => step.run(context).await,
        }
    }
}
