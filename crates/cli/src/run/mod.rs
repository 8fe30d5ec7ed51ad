//! `coffer run`: make, show and end runs.

mod changes;
mod create;
mod end;
mod list;
mod pause;
mod select;
mod shell;
mod show;
mod watch;

use clap::Subcommand;

pub(crate) use self::select::{RunRef, one_or_all};
use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(Box<create::Create>),
    List(list::List),
    Show(show::Show),
    Shell(shell::Shell),
    Diff(changes::Diff),
    Accept(changes::Accept),
    Discard(changes::Discard),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Stop(end::Stop),
    Delete(end::Delete),
    Watch(watch::Watch),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Create(create) => create.run(context).await,
            Self::List(list) => list.run(context).await,
            Self::Show(show) => show.run(context).await,
            Self::Shell(shell) => shell.run(context).await,
            Self::Diff(diff) => diff.run(context).await,
            Self::Accept(accept) => accept.run(context).await,
            Self::Discard(discard) => discard.run(context).await,
            Self::Pause(pause) => pause.run(context).await,
            Self::Resume(resume) => resume.run(context).await,
            Self::Stop(stop) => stop.run(context).await,
            Self::Delete(delete) => delete.run(context).await,
            Self::Watch(watch) => watch.run(context).await,
        }
    }
}
