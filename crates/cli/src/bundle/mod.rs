//! `coffer bundle`: what there is to know of one run, in a file that anyone can verify.

mod verify;

use clap::Subcommand;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Verify(verify::Verify),
}

impl Command {
    pub(crate) fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Verify(verify) => verify.run(context),
        }
    }
}
