//! The pages of approvals: the queue, one request, a group of equal ones, and the decisions.
//!
//! A decision is bound to what its page has shown: the form has the digest of each approval, and an approval that the session has
//! not shown in full is not decided. The API checks the rest: the reviewer's level, the requester, the state and the time.

mod arguments;
mod ballot;
mod decide;
mod diff;
mod facts;
mod group;
mod groups;
mod history;
mod pager;
mod queue;
mod request;
mod sign;

pub(crate) use facts::moment;

use axum::Router;
use axum::routing::{get, post};

use crate::State;

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .route("/approvals", get(queue::page))
        .route("/approvals/history", get(history::page))
        .route("/approvals/group/{key}", get(group::page).post(decide::group))
        .route("/approvals/{id}", get(request::page).post(decide::one))
        .route("/passkeys/consent/{id}", post(sign::begin))
}
