//! `coffer image`: the images that runs can use.

mod build;
mod context;
mod import;
mod list;
mod push;
mod send;
mod show;

use clap::Subcommand;
use fleet_view::{Fleet, is_of_one_node};
use wire::v1::Image;

use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;
use crate::quantity;

/// A command of `coffer image`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Import(import::Import),
    Build(build::Build),
    Push(push::Push),
    List(list::List),
    Show(show::Show),
}

impl Command {
    /// Executes the command.
    pub async fn run(self, context: &Context) -> Ended {
        match self {
            Self::Import(import) => import.run(context).await,
            Self::Build(build) => build.run(context).await,
            Self::Push(push) => push.run(context).await,
            Self::List(list) => list.run(context).await,
            Self::Show(show) => show.run(context).await,
        }
    }

    /// Executes the command over a fleet.
    pub async fn over(self, fleet: &Fleet) -> Ended {
        match self {
            Self::Push(push) => push.over(fleet).await,
            _ => Err(is_of_one_node("this command is")),
        }
    }
}

/// Describes an image that was just made.
fn made(image: &Image, talk: &mut Output) {
    talk.word(&image.reference).own(", ").word(&quantity::bytes(image.size_bytes));
    if !image.unusable.is_empty() {
        talk.own("; no run can use it: ").word(&image.unusable);
    } else if image.profiles.is_empty() {
        talk.own("; no profile allows it");
    } else {
        talk.own("; allowed by ").word(&image.profiles.join(", "));
    }
    talk.end_line();
}
