//! `coffer workspace`: the directories that the daemon keeps when their runs have ended.

mod delete;
mod list;
mod select;

use clap::Subcommand;

pub(crate) use self::select::resolve;
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(list::List),
    Delete(delete::Delete),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(context).await,
            Self::Delete(delete) => delete.run(context).await,
        }
    }
}
