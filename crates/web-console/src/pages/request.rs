//! Parts of a request to a page: its query, its ids, the viewer's roles; and the answers that a page is made of.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use tonic::codegen::http::request::Parts;
use tonic::{Response, Status};

use super::elements::{Part, is_id};
use crate::error::Problem;
use crate::form::Fields;
use crate::viewer::Viewer;

/// The query of a request's address.
pub(super) struct Query(pub(super) Fields);

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(Fields::parse(parts.uri.query().unwrap_or_default().as_bytes())))
    }
}

/// Returns an id of the path. Other texts have no page.
pub(super) fn id(text: String) -> Result<String, Problem> {
    if is_id(&text) { Ok(text) } else { Err(Problem::not_found()) }
}

/// Returns true if the viewer is an operator. The API checks it again.
pub(super) fn is_operator(viewer: &Viewer) -> bool {
    viewer.roles.iter().any(|role| role == "operator")
}

/// Returns true if the viewer may make, pause and stop runs. The API checks it again.
pub(super) fn is_maker(viewer: &Viewer) -> bool {
    viewer.roles.iter().any(|role| role == "operator" || role == "orchestrator")
}

/// Returns the part of a page that a request answered.
pub(super) fn part_of<T>(answer: Result<Response<T>, Status>) -> Part<T> {
    match answer {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => Err(status.message().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_kept() {
        assert_eq!(part_of(Ok(Response::new(1))), Ok(1));
        assert_eq!(part_of::<()>(Err(Status::permission_denied("no"))), Err("no".to_owned()));
        assert!(id("../approvals".to_owned()).is_err());
    }
}
