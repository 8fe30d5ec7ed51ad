//! Signing in: by a one-time link, by a token, or by the client certificate of the connection; `issuer` has the way over an issuer. Signing
//! out.

use std::sync::Arc;

use axum::extract::State as Extracted;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use maud::html;
use serde_json::json;
use timestamp::UnixMillis;
use tonic::codegen::http::header::{HeaderValue, SET_COOKIE};
use tonic::codegen::http::{HeaderMap, StatusCode, Uri};
use wire::v1::GetViewerRequest;

use crate::access::{Identity, Token};
use crate::api::quick;
use crate::connection::Connection;
use crate::error::{Problem, redirect};
use crate::form::{Checked, Fields};
use crate::layout::{own_path, page, sign_in_for};
use crate::session::Session;
use crate::shown::line;
use crate::viewer::{cookie, services};
use crate::ways;
use crate::{Parts, State};

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .route("/", get(async || redirect("/approvals")))
        .route("/sign-in", get(form))
        .route("/sign-in/token", post(by_token))
        .route("/sign-in/certificate", post(by_certificate))
        .route("/sign-in/link", get(link).post(by_link))
        .route("/sign-out", post(sign_out))
}

async fn form(
    Extracted(state): Extracted<State>,
    Extension(connection): Extension<Connection>,
    uri: Uri,
) -> Response {
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    ways::sign_in(&state, own_path(query.get("to")), &connection)
}

async fn by_token(
    Extracted(state): Extracted<State>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Problem> {
    let to = own_path(fields.get("to"));
    let Some(token) = Token::parse(fields.get("token")) else {
        let problem = "This is no token: copy it as it was printed.";
        return Ok((StatusCode::FORBIDDEN, ways::refused(&state, to, &connection, problem)).into_response());
    };
    enter(&state, (&connection, &headers), (Identity::Token(token), "token"), to, redirect).await
}

async fn by_certificate(
    Extracted(state): Extracted<State>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Problem> {
    let Some(certificate) = connection.certificate.clone() else {
        return Err(Problem::Bad(StatusCode::FORBIDDEN, "The browser has shown no client certificate."));
    };
    enter(
        &state,
        (&connection, &headers),
        (Identity::Certificate(certificate), "certificate"),
        own_path(fields.get("to")),
        redirect,
    )
    .await
}

/// Asks before it uses the link: programs that look at links before people do use none up.
async fn link(Extracted(state): Extracted<State>, uri: Uri) -> Result<Response, Problem> {
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let code = query.get("code");
    let name = state.0.doors.name_of_link(code, UnixMillis::now()).ok_or_else(used_up)?;
    let main = html! {
        h1 { "Sign in" }
        form.card method="post" action="/sign-in/link" {
            p { "You sign in as " (line(&name)) ", with all of its rights on this daemon." }
            input type="hidden" name="code" value=(code);
            button type="submit" autofocus { "Sign in" }
        }
    };
    Ok(page("Sign in", None, main))
}

async fn by_link(
    Extracted(state): Extracted<State>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Problem> {
    let identity = state.0.doors.take_link(fields.get("code"), UnixMillis::now()).ok_or_else(used_up)?;
    enter(&state, (&connection, &headers), (identity, "link"), "/", redirect).await
}

fn used_up() -> Problem {
    let message = "The link was used, or its minute is over. `coffer console` makes another.";
    Problem::Bad(StatusCode::FORBIDDEN, message)
}

/// Opens a session if the API knows the identity. It is on record before it is valid. `lead` has the browser load the path `to`.
pub(crate) async fn enter(
    state: &State,
    (connection, headers): (&Connection, &HeaderMap),
    (identity, by): (Identity, &str),
    to: &str,
    lead: fn(&str) -> Response,
) -> Result<Response, Problem> {
    let known = services(state, &identity, connection).console().get_viewer(quick(GetViewerRequest {})).await;
    let name = match known {
        Ok(known) => known.into_inner().principal,
        Err(status) if status.code() == tonic::Code::PermissionDenied => {
            return Ok((StatusCode::FORBIDDEN, ways::refused(state, to, connection, status.message()))
                .into_response());
        }
        Err(status) => return Err(status.into()),
    };
    connection.slot.prove();
    let details = json!({ "state": "opened", "by": by, "address": connection.address });
    state.0.access.record(&name, details).await?;
    end_earlier(state, headers).await;
    let (cookie, _) = state.0.doors.sessions.open(identity, name, UnixMillis::now());
    Ok(with_cookie(lead(to), state, &cookie, ""))
}

/// Ends the session that a browser has had. Its cookie is about to be replaced, so no page could sign it out.
pub(crate) async fn end_earlier(state: &State, headers: &HeaderMap) {
    let doors = &state.0.doors;
    let earlier = cookie(headers, &doors.origin.cookie());
    let earlier = earlier.and_then(|cookie| doors.sessions.find(&cookie, UnixMillis::now(), false));
    if let Some(earlier) = earlier {
        end(state, earlier, "sign_in").await;
    }
}

async fn sign_out(Extracted(state): Extracted<State>, checked: Checked) -> Response {
    end(&state, checked.viewer.session, "sign_out").await;
    with_cookie(redirect(&sign_in_for("/")), &state, "", "; Max-Age=0")
}

/// Ends a session, and records that and the way `by` which it ended.
async fn end(state: &State, session: Arc<Session>, by: &'static str) {
    let state = state.clone();
    // In a task of its own: a browser that leaves at once must not keep the end out of the file and the log.
    let ended = tokio::spawn(async move {
        let Parts { doors, access, .. } = &*state.0;
        doors.sessions.close(&session);
        // A daemon that is killed must not bring the session back.
        doors.write_sessions().await;
        // A log that cannot be written must not keep the session open.
        let _ = access.record(&session.name, json!({ "state": "ended", "by": by })).await;
    });
    let _ = ended.await;
}

pub(crate) fn with_cookie(mut answer: Response, state: &State, value: &str, more: &str) -> Response {
    let origin = &state.0.doors.origin;
    let secure = if origin.is_secure() { "; Secure" } else { "" };
    let cookie = format!("{}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}", origin.cookie());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(SET_COOKIE, cookie);
    }
    answer
}
