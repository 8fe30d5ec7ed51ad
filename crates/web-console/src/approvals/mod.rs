//! The pages of approvals: the queue, one request, a group of equal ones, and the decisions.
//!
//! A decision is bound to what its page has shown: the form has the digest of each approval, and an approval that the session has
//! not shown in full is not decided. The API checks the rest: the reviewer's level, the requester, the state and the time.

mod arguments;
mod decide;
mod diff;
mod facts;
mod group;
mod history;
mod pager;
mod queue;
mod readings;
mod request;

pub(crate) use decide::Ballot;
pub(crate) use facts::moment;
pub(crate) use readings::Readings;

use axum::Router;
use axum::routing::get;

use crate::State;

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .route("/approvals", get(queue::page))
        .route("/approvals/history", get(history::page))
        .route("/approvals/group/{key}", get(group::page).post(decide::group))
        .route("/approvals/{id}", get(request::page).post(decide::one))
}
