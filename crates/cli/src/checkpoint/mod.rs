//! `coffer checkpoint`: copies of what runs have changed.

mod create;
mod delete;
mod list;
mod show;

use wire::v1::CheckpointPart;
use wire::v1::checkpoint_part::Kind;

use crate::client::Client;
use crate::failure::Failure;
use crate::ids;

crate::verbs::verbs! {
    Create(create::Create),
    List(list::List),
    Show(show::Show),
    Delete(delete::Delete),
}

/// Number of checkpoints that are searched for a partial id.
const MOST: usize = 100_000;

/// Returns the whole id of the checkpoint that `text` names by its whole id, or by a unique end or beginning.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    ids::resolve(text, "checkpoint", "coffer checkpoint list", async || {
        let all = list::all(client, "", MOST).await?;
        Ok(all.checkpoints.into_iter().map(|checkpoint| checkpoint.checkpoint_id).collect())
    })
    .await
}

/// Returns the name of a part for people.
fn name(part: &CheckpointPart) -> &'static str {
    match part.kind() {
        Kind::Unspecified => "?",
        Kind::Workspace => "workspace",
        Kind::State => "state",
        Kind::Root => "root",
        Kind::Repository => "repository",
    }
}
