//! `coffer base`: immutable trees of files that runs begin on.

mod create;
mod delete;
mod list;
mod show;
mod verify;

use wire::v1::{Base, base_source::Source};

use crate::client::Client;
use crate::failure::Failure;
use crate::ids;

crate::verbs::verbs! {
    Create(create::Create),
    Push(transfer_commands::PushBase),
    List(list::List),
    Show(show::Show),
    Verify(verify::Verify),
    Delete(delete::Delete),
}

/// Number of bases that are searched for a partial id.
const MOST: usize = 100_000;

/// Returns the whole id of the base that `text` names by its whole id, or by a unique end or beginning.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    ids::resolve(text, "base", "coffer base list", async || {
        let all = list::all(client, MOST).await?;
        Ok(all.bases.into_iter().map(|base| base.base_id).collect())
    })
    .await
}

/// Returns `CHANGED` if the host has changed its files, so that no run begins on it.
fn state(base: &Base) -> &'static str {
    if base.changed { "CHANGED" } else { "ok" }
}

/// Describes the source of a base in a few words.
fn source(base: &Base) -> String {
    match base.source.as_ref().and_then(|source| source.source.as_ref()) {
        Some(Source::Directory(directory)) => directory.path.clone(),
        Some(Source::Clone(clone)) if clone.revision.is_empty() => format!("clone of {}", clone.repository),
        Some(Source::Clone(clone)) => format!("clone of {} at {}", clone.repository, clone.revision),
        Some(Source::Copy(copy)) => format!("copy of {}", copy.origin),
        Some(Source::Checkpoint(of)) => format!("checkpoint {}", of.checkpoint_id),
        None => "-".to_owned(),
    }
}
