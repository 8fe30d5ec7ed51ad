//! Reasons why a request is not served.

use axum::response::{IntoResponse, Response};
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::{HeaderValue, LOCATION};

/// Reason why a request is not served.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The viewer has to sign in first, to see this path.
    SignIn(String),
    /// The browser came from another site. It asks again for this path, from this one.
    Again(String),
    /// The session of a request that a page made by itself has ended.
    Ended,
    /// The request is wrong.
    Bad(StatusCode, &'static str),
    /// The daemon refused it.
    Refused(tonic::Status),
}

impl Problem {
    pub(crate) fn not_found() -> Self {
        Self::Bad(StatusCode::NOT_FOUND, "There is no such page.")
    }
}

impl From<tonic::Status> for Problem {
    fn from(status: tonic::Status) -> Self {
        Self::Refused(status)
    }
}

/// Has the browser load another page of this console with GET.
pub(crate) fn redirect(path: &str) -> Response {
    let mut answer = StatusCode::SEE_OTHER.into_response();
    let path = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    answer.headers_mut().insert(LOCATION, path);
    answer
}
