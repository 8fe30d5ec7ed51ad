//! The viewer of a page: the session of a request, as the API knows it at this moment.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use serde_json::json;
use timestamp::UnixMillis;
use tonic::Code;
use tonic::codegen::http::request::Parts;
use tonic::codegen::http::{HeaderMap, Method, StatusCode};
use wire::v1::GetViewerRequest;

use crate::State;
use crate::access::Identity;
use crate::api::{Services, quick};
use crate::connection::Connection;
use crate::error::Problem;
use crate::guard::{is_from_elsewhere, is_own_request};
use crate::session::Session;

/// A person who looks at a page.
pub(crate) struct Viewer {
    /// Name of the principal.
    pub(crate) name: String,
    /// API roles of the principal.
    pub(crate) roles: Vec<String>,
    /// The API, with the rights of the principal.
    pub(crate) services: Services,
    pub(crate) session: Arc<Session>,
}

impl Viewer {
    /// Returns true if the API lets the viewer decide on approvals. The API checks it again with each decision.
    pub(crate) fn may_decide(&self) -> bool {
        self.roles.iter().any(|role| role == "approver" || role == "director")
    }
}

/// Returns the services with the rights of an identity, at the address of a connection.
pub(crate) fn services(state: &State, identity: &Identity, connection: &Connection) -> Services {
    let authorization = match identity {
        Identity::Token(token) => Some(token.authorization()),
        Identity::User { .. } | Identity::Certificate(_) => None,
    };
    let extensions = state.0.access.present(identity, connection.address);
    Services::new(state.0.access.api.clone(), extensions, authorization)
}

impl FromRequestParts<State> for Viewer {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &State) -> Result<Self, Problem> {
        let Some(connection) = parts.extensions.get::<Connection>().cloned() else {
            return Err(Problem::not_found());
        };
        // Also with a cookie: a site of the same domain must not have it used.
        if parts.method == Method::GET && is_from_elsewhere(&parts.headers) {
            return Err(Problem::Again(path_of(parts)));
        }
        let doors = &state.0.doors;
        let is_own = is_own_request(&parts.headers);
        let cookie = cookie(&parts.headers, &doors.origin.cookie());
        let session = cookie.and_then(|cookie| doors.sessions.find(&cookie, UnixMillis::now(), !is_own));
        let Some(session) = session else { return Err(without_session(parts, is_own)) };
        if !session.opens(parts.uri.path()) {
            let message = "This session is for one approval. To see more, sign out and sign in.";
            return Err(Problem::Bad(StatusCode::FORBIDDEN, message));
        }
        let services = services(state, &session.identity, &connection);
        match services.console().get_viewer(quick(GetViewerRequest {})).await {
            Ok(known) => {
                connection.slot.prove();
                let roles = known.into_inner().roles;
                Ok(Self { name: session.name.clone(), roles, services, session })
            }
            // The credential has ended, or lost its roles. So does all that it opened.
            Err(status) if matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) => {
                doors.sessions.close(&session);
                let details = json!({ "state": "ended", "by": "credential" });
                // A log that cannot be written must not keep anybody in.
                let _ = state.0.access.record(&session.name, details).await;
                Err(without_session(parts, is_own))
            }
            Err(status) => Err(status.into()),
        }
    }
}

fn without_session(parts: &Parts, is_own: bool) -> Problem {
    if is_own {
        return Problem::Ended;
    }
    if parts.method != Method::GET {
        return Problem::SignIn("/".to_owned());
    }
    Problem::SignIn(path_of(parts))
}

fn path_of(parts: &Parts) -> String {
    parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned()
}

/// Returns the only cookie of this name. Several are none: another site on this host may have set one.
pub(crate) fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let all = headers.get_all("cookie").iter().filter_map(|value| value.to_str().ok());
    let mut ours = all
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(|(key, _)| *key == name);
    match (ours.next(), ours.next()) {
        (Some((_, value)), None) => Some(value.to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cookie_of_the_name_counts() {
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("cookie", value.parse().unwrap());
            }
            cookie(&headers, "cofferdam")
        };
        assert_eq!(with(&["a=b; cofferdam=one"]).as_deref(), Some("one"));
        assert_eq!(with(&["a=b", "cofferdam=one"]).as_deref(), Some("one"));
        assert_eq!(with(&["cofferdam=one; cofferdam=two"]), None);
        assert_eq!(with(&["cofferdam=one", "cofferdam=two"]), None);
        assert_eq!(with(&["cofferdam2=one; xcofferdam=two; cofferdam"]), None);
        assert_eq!(with(&[]), None);
    }
}
