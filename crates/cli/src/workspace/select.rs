//! How a command line names a workspace that the daemon keeps.

use super::list;
use crate::client::Client;
use crate::failure::Failure;
use crate::ids;

/// Workspaces looked through for part of an id.
const MOST: usize = 100_000;

/// The whole id of the workspace that `text` names: the whole, or a unique end or beginning.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    if ids::is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let all = list::all(client, MOST, false).await?;
    let known = all.workspaces.iter().map(|workspace| workspace.workspace_id.as_str());
    ids::pick(known, text, "workspace", "coffer workspace list").map(str::to_owned)
}
