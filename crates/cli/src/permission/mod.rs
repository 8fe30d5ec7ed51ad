//! `coffer permission`: grants and revocations beside the policy.

mod change;
mod list;
mod select;

use clap::Subcommand;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Grant(change::Grant),
    Revoke(change::Revoke),
    List(list::List),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Grant(grant) => grant.run(context).await,
            Self::Revoke(revoke) => revoke.run(context).await,
            Self::List(list) => list.run(context).await,
        }
    }
}
