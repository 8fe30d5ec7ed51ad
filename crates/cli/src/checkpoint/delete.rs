//! `coffer checkpoint delete`.

use clap::Args;
use wire::v1::DeleteCheckpointRequest;

use super::resolve;
use crate::client::Context;
use crate::ending::each;
use crate::failure::Ended;

/// Delete checkpoints.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer checkpoint delete 3f2a9c01")]
pub(crate) struct Delete {
    /// The checkpoints' ids, or unique beginnings or ends of them.
    #[arg(value_name = "CHECKPOINT", required = true)]
    checkpoints: Vec<String>,
}

impl Delete {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let words = ("deleting the checkpoint…", "deleted");
        each(context.ui, "checkpointId", words, &self.checkpoints, async |checkpoint| {
            let checkpoint_id = resolve(&client, checkpoint).await?;
            let request = DeleteCheckpointRequest { checkpoint_id: checkpoint_id.clone() };
            client.checkpoints().delete_checkpoint(request).await?;
            Ok(checkpoint_id)
        })
        .await
    }
}
