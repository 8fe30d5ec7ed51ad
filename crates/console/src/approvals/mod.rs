//! The pages of approvals.

use axum::Router;

use crate::State;

pub(crate) fn routes() -> Router<State> {
    Router::new()
}

/// Readings.
#[derive(Debug, Default)]
pub(crate) struct Readings;
