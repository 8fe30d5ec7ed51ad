//! `coffer checkpoint create`.

use std::time::Duration;

use clap::Args;
use wire::v1::CheckpointRunRequest;

use crate::client::Context;
use crate::failure::Ended;
use crate::quantity;
use crate::run_ref::RunRef;

/// Copy what a run has changed until now. Prints the checkpoint's id.
///
/// The run's commands are frozen while its workspace, /state and a writable root are copied. Calls wait for that.
/// The memory of processes is not in a checkpoint.
#[derive(Args, Debug)]
#[command(before_help = "Example: CHECKPOINT=$(coffer checkpoint create 3f2a9c01 --label 'tests pass')")]
pub(crate) struct Create {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Text to recognise it by: one line, at most 200 bytes.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    label: String,
}

impl Create {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let request = CheckpointRunRequest { run_id, label: self.label };
        let made = context.ui.wait("copying…", client.checkpoints().checkpoint_run(request)).await?;
        context.ui.answer_and_talk(made, |made, page, talk| {
            let made = made.checkpoint.unwrap_or_default();
            page.word(&made.checkpoint_id).end_line();
            let size = quantity::bytes(made.size_bytes);
            talk.block(&format!("{size}, frozen for {:?}", Duration::from_micros(made.frozen_us))).end_line();
            let left_out: u64 = made.parts.iter().map(|part| part.left_out).sum();
            if left_out > 0 {
                talk.own("FIFOs, sockets and devices were left out\n");
            }
        })
    }
}
