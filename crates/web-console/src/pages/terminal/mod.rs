//! Terminals: one that is live, and recordings of those that were.

mod live;
mod recordings;
mod show;
mod table;

use axum::Router;

use crate::State;

/// Word of the pages in the navigation.
const TITLE: &str = "Runs";

pub(super) fn routes() -> Router<State> {
    live::routes().merge(recordings::routes())
}
