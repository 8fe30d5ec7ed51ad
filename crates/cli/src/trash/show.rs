//! `coffer trash show`: the content of a deleted file, byte for byte.

use clap::Args;
use wire::v1::ReadTrashRequest;

use crate::client::{Context, quick};
use crate::exit::Exit;
use crate::failure::Ended;
use crate::run_ref::RunRef;

/// Size of the largest piece in one answer, in bytes.
const PIECE: u32 = 1 << 20;

/// Print the content of a deleted file, byte for byte.
///
/// To restore it, write it: the policy and the audit log treat that as any write.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer trash show 3f2a9c01 1795320000123-7-0 | coffer call write 3f2a9c01 old.txt -"
)]
pub(crate) struct Show {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// The entry, as `coffer trash list` names it.
    entry: String,
}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let ui = context.ui;
        let (client, run_id) = context.connect_to(&self.run).await?;
        let [mut outlet, _] = ui.outlets();
        let mut offset = 0;
        loop {
            let request = ReadTrashRequest {
                run_id: run_id.clone(),
                entry: self.entry.clone(),
                offset,
                max_bytes: PIECE,
            };
            let piece = client.trash().read_trash(quick(request)).await?.into_inner();
            if piece.data.is_empty() {
                outlet.end()?;
                return Ok(Exit::Ok);
            }
            offset += piece.data.len() as u64;
            if ui.is_structured() {
                ui.line(&piece)?;
            } else {
                outlet.write(&piece.data)?;
            }
        }
    }
}
