//! How a command line names an approval.

use wire::v1::ListApprovalsRequest;
use wire::v1::approval::State;

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;

/// The whole id of the approval that `text` names. What waits is looked through first, so that a short end of an
/// id stays enough however many approvals there have been.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    if ids::is_whole(text) {
        return Ok(text.to_ascii_lowercase());
    }
    if let Ok(id) = find(client, text, State::Pending).await? {
        return Ok(id);
    }
    find(client, text, State::Unspecified).await?
}

async fn find(client: &Client, text: &str, state: State) -> Result<Result<String, Failure>, Failure> {
    let request = ListApprovalsRequest { state: state.into(), run_id: String::new() };
    let response = client.approvals().list_approvals(quick(request)).await?.into_inner();
    let ids = response.approvals.iter().map(|approval| approval.approval_id.as_str());
    Ok(ids::pick(ids, text, "approval", "coffer approval list --state all").map(str::to_owned))
}
