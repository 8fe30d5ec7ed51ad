//! `coffer workspace`: the directories that the daemon keeps after their runs have ended.

mod delete;
mod list;
mod show;

use crate::client::Client;
use crate::failure::Failure;
use crate::ids;

crate::verbs::verbs! {
    List(list::List),
    Show(show::Show),
    Delete(delete::Delete),
}

/// Number of workspaces that are searched for a partial id.
const MOST: usize = 100_000;
/// Command that lists workspaces, for hints.
const LIST: &str = "coffer workspace list";

/// Returns the whole id of the workspace that `text` names by its whole id, or by a unique end or beginning.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    ids::resolve(text, "workspace", LIST, async || {
        let all = list::all(client, MOST, false).await?;
        Ok(all.workspaces.into_iter().map(|workspace| workspace.workspace_id).collect())
    })
    .await
}
