//! `coffer audit`: reads and verifies the audit log.

mod summary;
mod tail;
mod verify;

use clap::Subcommand;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Tail(tail::Tail),
    Verify(verify::Verify),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Tail(tail) => tail.run(context).await,
            Self::Verify(verify) => verify.run(context).await,
        }
    }
}
