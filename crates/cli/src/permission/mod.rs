//! `coffer permission`: grants and revocations beside the policy.

mod change;
mod list;

use crate::client::Client;
use crate::failure::Failure;
use crate::ids;

crate::verbs::verbs! {
    Grant(change::Grant),
    Revoke(change::Revoke),
    List(list::List),
}

/// The whole id of the permission that `text` names: the whole, or a unique end or beginning among those in force.
async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    ids::resolve(text, "permission", "coffer permission list", async || {
        let all = list::all(client, false).await?;
        Ok(all.into_iter().map(|permission| permission.permission_id).collect())
    })
    .await
}
