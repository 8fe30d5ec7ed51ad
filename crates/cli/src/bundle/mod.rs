//! `coffer bundle`: what there is to know of one run, in a file that anyone can verify.

mod create;
mod verify;

use clap::Subcommand;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Create(create::Create),
    Verify(verify::Verify),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Create(create) => create.run(context).await,
            Self::Verify(verify) => verify.run(context),
        }
    }
}
