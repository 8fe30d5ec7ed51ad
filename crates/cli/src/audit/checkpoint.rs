//! `coffer audit checkpoint`, `coffer audit key` and `coffer audit rotate-key`.

use clap::Args;
use wire::v1::{Checkpoint, GetCheckpointRequest, RotateKeyRequest};

use crate::client::Context;
use crate::failure::Ended;

/// Sign the current state of the log and print the checkpoint. Store it where this host's owner cannot change it.
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

/// Replace the signing key and print the new one. The old key signs the change, so its holders can still verify the log.
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
