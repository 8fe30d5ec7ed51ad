//! `coffer permission`: grants and revocations in addition to the policy.

mod change;
mod list;
mod show;

use crate::client::Client;
use crate::failure::Failure;
use crate::ids;

crate::verbs::verbs! {
    Grant(change::Grant),
    Revoke(change::Revoke),
    List(list::List),
    Show(show::Show),
}

/// Returns the whole id of the permission that `text` names by its whole id, or by a unique end or beginning among those in force.
async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    ids::resolve(text, "permission", "coffer permission list", async || {
        let all = list::all(client, false).await?;
        Ok(all.into_iter().map(|permission| permission.permission_id).collect())
    })
    .await
}
