//! `coffer checkpoint show`.

use std::time::Duration;

use clap::Args;
use wire::v1::GetRunCheckpointRequest;

use super::{name, resolve};
use crate::client::Context;
use crate::failure::Ended;
use crate::{ids, quantity, time};

/// Show a checkpoint: its run, its digest, its parts and the processes that ran.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer checkpoint show 3f2a9c01")]
pub(crate) struct Show {
    /// The checkpoint's id, or a unique beginning or end of it.
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let request = GetRunCheckpointRequest { checkpoint_id: resolve(&client, &self.checkpoint).await? };
        let got = client.checkpoints().get_run_checkpoint(request).await?.into_inner();
        context.ui.answer(got, |got, page| {
            let got = got.checkpoint.unwrap_or_default();
            let mut facts = vec![
                ("checkpoint", got.checkpoint_id.clone()),
                ("run", got.run_id.clone()),
                ("label", ids::or_dash(&got.label)),
                ("made by", got.made_by.clone()),
                ("made at", time::moment(got.created_at.as_ref())),
                ("frozen for", format!("{:?}", Duration::from_micros(got.frozen_us))),
                ("digest", format!("sha256:{}", got.digest)),
                ("size", quantity::bytes(got.size_bytes)),
            ];
            facts.extend(got.parts.iter().map(|part| {
                let (size, files) = (quantity::bytes(part.size_bytes), part.files);
                (name(part), format!("{size} in {files} files, {} left out", part.left_out))
            }));
            facts.push(("processes", ids::or_dash(&got.processes.join(", "))));
            page.facts(&facts);
        })
    }
}
