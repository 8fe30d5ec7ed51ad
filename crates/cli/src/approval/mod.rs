//! `coffer approval`: what waits for consent, and the decisions.

mod decide;
mod list;
mod select;
mod show;
mod watch;

use clap::Subcommand;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    List(list::List),
    Show(show::Show),
    Approve(decide::Approve),
    Deny(decide::Deny),
    Watch(watch::Watch),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(context).await,
            Self::Show(show) => show.run(context).await,
            Self::Approve(approve) => approve.run(context).await,
            Self::Deny(deny) => deny.run(context).await,
            Self::Watch(watch) => watch.run(context).await,
        }
    }
}
