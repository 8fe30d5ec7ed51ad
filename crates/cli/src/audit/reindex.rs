//! `coffer audit reindex`.

use clap::Args;
use tokio_stream::StreamExt as _;
use wire::v1::{RebuildIndexRequest, RebuildIndexResponse};

use crate::client::Context;
use crate::failure::Ended;
use crate::quantity::count;

/// Rebuild the index of the log. `audit query` waits for it.
///
/// The daemon also does this when the index is missing, damaged or of another version.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer audit reindex")]
pub(crate) struct Reindex {}

impl Reindex {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let bar = context.ui.count_bar();
        let mut last = RebuildIndexResponse::default();
        let mut progress = client.audit().rebuild_index(RebuildIndexRequest {}).await?.into_inner();
        while let Some(step) = progress.next().await {
            last = step?;
            bar.at(last.indexed_through, last.head_sequence);
        }
        drop(bar);
        context.ui.answer_and_talk(last, |last, _, talk| {
            talk.word(&count(last.indexed_through, "record", "records")).own(" in the index\n");
        })
    }
}
