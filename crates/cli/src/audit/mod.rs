//! `coffer audit`: reads, searches, exports and verifies the audit log.

mod checkpoint;
mod export;
mod filter;
mod query;
mod reindex;
mod summary;
mod tail;
mod verify;

use clap::Subcommand;

use crate::client::Context;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Checkpoint(checkpoint::Take),
    Key(checkpoint::Key),
    RotateKey(checkpoint::Rotate),
    Tail(tail::Tail),
    Query(query::Query),
    Export(export::Export),
    Reindex(reindex::Reindex),
    Verify(verify::Verify),
}

impl Command {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        match self {
            Self::Checkpoint(take) => take.run(context).await,
            Self::Key(key) => key.run(context).await,
            Self::RotateKey(rotate) => rotate.run(context).await,
            Self::Tail(tail) => tail.run(context).await,
            Self::Query(query) => query.run(context).await,
            Self::Export(export) => export.run(context).await,
            Self::Reindex(reindex) => reindex.run(context).await,
            Self::Verify(verify) => verify.run(context).await,
        }
    }
}
