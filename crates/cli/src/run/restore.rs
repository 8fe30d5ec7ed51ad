//! `coffer run restore`.

use clap::Args;
use wire::v1::RestoreRunRequest;

use super::RunRef;
use crate::checkpoint;
use crate::client::Context;
use crate::failure::Ended;

/// Give a run the files of one of its checkpoints. Prints the id of a checkpoint of the state before.
///
/// Its commands, processes and sessions are ended. To undo it, restore the printed checkpoint.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run restore 3f2a9c01 5b7e22d0")]
pub(crate) struct Restore {
    /// The run's id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The checkpoint's id, or a unique beginning or end of it.
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: String,
}

impl Restore {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (client, run_id) = context.connect_to(&self.run).await?;
        let checkpoint_id = checkpoint::resolve(&client, &self.checkpoint).await?;
        let request = RestoreRunRequest { run_id, checkpoint_id };
        let done = context.ui.wait("restoring…", client.checkpoints().restore_run(request)).await?;
        context.ui.answer_and_talk(done, |done, page, talk| {
            page.word(&done.before.unwrap_or_default().checkpoint_id).end_line();
            if done.ended_processes > 0 {
                talk.block(&format!("{} processes and sessions were ended", done.ended_processes)).end_line();
            }
        })
    }
}
