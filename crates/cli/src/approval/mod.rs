//! `coffer approval`: what waits for consent, and the decisions.

mod decide;
mod list;
mod remembered;
mod select;
mod show;
mod votes;
mod watch;

use clap::Subcommand;

pub(crate) use self::select::resolve;
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
    Remembered(remembered::Remembered),
    Forget(remembered::Forget),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::List(list) => list.run(context).await,
            Self::Show(show) => show.run(context).await,
            Self::Approve(approve) => approve.run(context).await,
            Self::Deny(deny) => deny.run(context).await,
            Self::Watch(watch) => watch.run(context).await,
            Self::Remembered(remembered) => remembered.run(context).await,
            Self::Forget(forget) => forget.run(context).await,
        }
    }
}
