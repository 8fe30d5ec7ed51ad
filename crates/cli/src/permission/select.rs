//! How a command line names a permission.

use super::list;
use crate::client::Client;
use crate::failure::Failure;
use crate::ids;

/// The whole id of the permission that `text` names: the whole, or a unique end or beginning among those in force.
pub(super) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    if ids::is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    let all = list::all(client, false).await?;
    let known = all.iter().map(|permission| permission.permission_id.as_str());
    ids::pick(known, text, "permission", "coffer permission list").map(str::to_owned)
}
