//! `coffer audit checkpoint`, `coffer audit key` and `coffer audit rotate-key`.

use clap::Args;
use wire::v1::{Checkpoint, GetCheckpointRequest, RotateKeyRequest};

use crate::client::Context;
use crate::exit::Ended;

/// Sign the log as it is now, and print the checkpoint: keep it where this host's owner cannot reach it.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit checkpoint > /mnt/elsewhere/checkpoint")]
pub(crate) struct Take {}

impl Take {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let response = client.audit().get_checkpoint(GetCheckpointRequest {}).await?.into_inner();
        show(context, response.checkpoint, |checkpoint| &checkpoint.note)
    }
}

/// Print the public key that signs checkpoints, for `coffer audit verify --key`.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit key")]
pub(crate) struct Key {}

impl Key {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let response = client.audit().get_checkpoint(GetCheckpointRequest {}).await?.into_inner();
        show(context, response.checkpoint, |checkpoint| &checkpoint.verifier_key)
    }
}

/// Sign with a new key from now on, and print it. The old key vouches for it, on record, so that whoever has the old one
/// can still verify.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit rotate-key")]
pub(crate) struct Rotate {}

impl Rotate {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let response = client.audit().rotate_key(RotateKeyRequest {}).await?.into_inner();
        show(context, response.checkpoint, |checkpoint| &checkpoint.verifier_key)
    }
}

fn show(context: &Context, checkpoint: Option<Checkpoint>, text: impl Fn(&Checkpoint) -> &str) -> Ended {
    context.ui.answer(checkpoint.unwrap_or_default(), |checkpoint, page| {
        for line in text(&checkpoint).split_terminator('\n') {
            page.word(line).own("\n");
        }
    })
}
