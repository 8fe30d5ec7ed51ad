//! Answers to requests that cannot be served.

use axum::response::{IntoResponse, Response};
use maud::html;
use tonic::Code;
use tonic::codegen::http::StatusCode;

use crate::error::{Problem, redirect};
use crate::layout;
use crate::shown::line;

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        match self {
            Self::SignIn(path) => redirect(&layout::sign_in_for(&path)),
            Self::Again(path) => layout::again(&path),
            Self::Ended => {
                (StatusCode::UNAUTHORIZED, "The session has ended: sign in again.").into_response()
            }
            Self::Bad(status, message) => failure(status, message),
            Self::Refused(status) => failure(status_of(status.code()), status.message()),
        }
    }
}

/// Returns a page that says why.
fn failure(status: StatusCode, message: &str) -> Response {
    let main = html! {
        h1 { "That did not work" }
        p.notice.bad role="alert" { (line(message)) }
        p { a href="/approvals" { "Back to the approvals" } }
    };
    let mut answer = layout::page("Problem", None, main);
    *answer.status_mut() = status;
    answer
}

/// Returns the status of HTTP that is nearest to one of gRPC.
pub(crate) fn status_of(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists => StatusCode::CONFLICT,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded | Code::Cancelled => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
