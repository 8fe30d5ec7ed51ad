//! `coffer approval`: pending approvals, and decisions on them.

mod decide;
mod list;
mod remembered;
mod show;
mod watch;

use wire::v1::ListApprovalsRequest;
use wire::v1::approval::State;

use crate::client::{Client, quick};
use crate::failure::Failure;
use crate::ids;

crate::verbs::verbs! {
    List(list::List),
    Show(show::Show),
    Approve(decide::Approve),
    Deny(decide::Deny),
    Watch(watch::Watch),
    Remembered(remembered::Remembered),
    Forget(remembered::Forget),
}

/// Returns the whole id of the approval that `text` names.
///
/// It searches pending approvals first. So a short end of an id remains unique among them, however many approvals there were.
pub(crate) async fn resolve(client: &Client, text: &str) -> Result<String, Failure> {
    let find = async |state: State| {
        ids::resolve(text, "approval", "coffer approval list --state all", async || {
            let request = ListApprovalsRequest { state: state.into(), run_id: String::new() };
            let listed = client.approvals().list_approvals(quick(request)).await?.into_inner();
            Ok(listed.approvals.into_iter().map(|approval| approval.approval_id).collect())
        })
        .await
    };
    if let Ok(id) = find(State::Pending).await {
        return Ok(id);
    }
    find(State::Unspecified).await
}
