//! Forms that a browser sends, bounded, and checked to be ours.

use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts as _, Request};
use tokio::time::timeout;
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::CONTENT_TYPE;
use url::form_urlencoded;

use crate::State;
use crate::error::Problem;
use crate::viewer::Viewer;

/// Largest body, bytes. A comment may have 4,096 characters, and a group 100 approvals.
const LARGEST: usize = 64 * 1024;
/// Most fields.
const MOST: usize = 256;
/// Time that a browser has to send a body.
const BODY: Duration = Duration::from_secs(10);

/// The fields of a form or of a query, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// Parses the form of `application/x-www-form-urlencoded`. Fields beyond the bound are dropped.
    pub(crate) fn parse(encoded: &[u8]) -> Self {
        Self(form_urlencoded::parse(encoded).into_owned().take(MOST).collect())
    }

    /// Returns the first field of this name; empty if there is none.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    /// Returns all fields of this name.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

impl FromRequest<State> for Fields {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &State) -> Result<Self, Problem> {
        let kind =
            request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().unwrap_or_default().trim() != "application/x-www-form-urlencoded" {
            return Err(Problem::Bad(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Send a form."));
        }
        match timeout(BODY, to_bytes(request.into_body(), LARGEST)).await {
            Ok(Ok(body)) => Ok(Self::parse(&body)),
            Ok(Err(_)) => Err(Problem::Bad(
                StatusCode::PAYLOAD_TOO_LARGE,
                "The form is incomplete or larger than 64 KiB.",
            )),
            Err(_) => {
                Err(Problem::Bad(StatusCode::REQUEST_TIMEOUT, "The form took longer than 10 s to arrive."))
            }
        }
    }
}

/// A form of a session, sent from one of its pages.
pub(crate) struct Checked {
    pub(crate) viewer: Viewer,
    pub(crate) fields: Fields,
}

impl FromRequest<State> for Checked {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &State) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let viewer = Viewer::from_request_parts(&mut parts, state).await?;
        let fields = Fields::from_request(Request::from_parts(parts, body), state).await?;
        if !viewer.session.is_csrf(fields.get("csrf")) {
            let message = "The form does not belong to this session: load the page again.";
            return Err(Problem::Bad(StatusCode::FORBIDDEN, message));
        }
        Ok(Self { viewer, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::{Fields, MOST};

    #[test]
    fn fields_are_decoded_repeated_and_bounded() {
        let fields = Fields::parse(b"a=1&b=x+y%0A&a=2&c");
        assert_eq!((fields.get("b"), fields.get("c"), fields.get("d")), ("x y\n", "", ""));
        assert_eq!(fields.all("a").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(Fields::parse("a=1&".repeat(9_000).as_bytes()).all("a").count(), MOST);
    }
}
