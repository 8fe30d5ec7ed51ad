//! The pages beside approvals: what the daemon does, and what it has done.
//!
//! Each page is made of answers of the API, by a function without effects. A part that the viewer may not see, or that the daemon
//! refuses, is replaced by the reason.

mod alerts;
mod audit;
mod calls;
mod elements;
mod figures;
mod foreign;
mod overview;
mod policy;
mod record;
mod request;
mod runs;
mod terminal;
mod vendored;

use axum::Router;

use crate::State;

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .merge(overview::routes())
        .merge(runs::routes())
        .merge(calls::routes())
        .merge(audit::routes())
        .merge(alerts::routes())
        .merge(policy::routes())
        .merge(terminal::routes())
        .merge(vendored::routes())
}
