//! Signing in at an issuer. The session holds the ID token, which each of its requests shows to the guard of the API.
//!
//! The form leads to a page, and the page to the issuer: the policy of pages lets no form lead to another host, also not by a redirect. The
//! issuer sends the browser back from another site. Only a cookie that says so (`SameSite=Lax`) comes with that, so the sign-in that is
//! under way has its own, which opens nothing.

use std::time::SystemTime;

use axum::extract::State as Extracted;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use oidc_sign_in::{Answered, Failed, LIFE};
use tonic::codegen::http::header::{HeaderValue, SET_COOKIE};
use tonic::codegen::http::{HeaderMap, StatusCode, Uri};

use crate::State;
use crate::access::{Identity, Token};
use crate::connection::Connection;
use crate::error::Problem;
use crate::form::Fields;
use crate::layout::{again, leave, own_path};
use crate::sign_in::enter;
use crate::viewer::cookie;
use crate::ways::refused;

/// Path to which issuers send browsers back.
const ANSWER: &str = "/sign-in/issuer/answer";

pub(crate) fn routes() -> Router<State> {
    Router::new().route("/sign-in/issuer", post(begin)).route(ANSWER, get(finish))
}

/// Returns the URL to which issuers send browsers back to a console with this origin.
pub fn redirect_uri(origin: &crate::Origin) -> String {
    format!("{origin}{ANSWER}")
}

async fn begin(
    Extracted(state): Extracted<State>,
    Extension(connection): Extension<Connection>,
    fields: Fields,
) -> Response {
    let Some(issuers) = &state.0.access.issuers else { return Problem::not_found().into_response() };
    let (to, issuer) = (own_path(fields.get("to")), fields.get("issuer"));
    match issuers.begin(issuer, to, SystemTime::now()).await {
        Ok(begun) => with_pending(leave(&begun.url, issuer), &state, &begun.cookie, LIFE),
        Err(failed) => {
            (status(&failed), refused(&state, to, &connection, &failed.to_string())).into_response()
        }
    }
}

async fn finish(
    Extracted(state): Extracted<State>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let Some(issuers) = &state.0.access.issuers else { return Err(Problem::not_found()) };
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let answered = Answered {
        state: query.get("state"),
        code: query.get("code"),
        error: query.get("error"),
        description: query.get("error_description"),
        issuer: query.get("iss"),
    };
    let pending = cookie(&headers, &name(&state)).unwrap_or_default();
    let failed = match issuers.finish(&pending, answered, connection.address, SystemTime::now()).await {
        Ok(finished) => {
            let to = own_path(&finished.to);
            let token = Token::parse(&finished.token);
            let token =
                token.ok_or(Problem::Bad(StatusCode::BAD_GATEWAY, "The issuer has sent no token."))?;
            // The browser comes from another site, so it does not send the session's cookie when it is redirected.
            let identity = (Identity::Token(token), "issuer");
            let entered = enter(&state, (&connection, &headers), identity, to, again).await?;
            return Ok(with_pending(entered, &state, "", 0));
        }
        Err(failed) => failed,
    };
    let answer = (status(&failed), refused(&state, "/", &connection, &failed.to_string())).into_response();
    // Another site can have the browser ask for this. It must not end the sign-in that is under way. One that had no turn has not
    // used its code, and goes on when the page is loaded again.
    let goes_on = matches!(failed, Failed::Stale | Failed::Busy);
    if goes_on { Ok(answer) } else { Ok(with_pending(answer, &state, "", 0)) }
}

fn status(failed: &Failed) -> StatusCode {
    match failed {
        Failed::Unknown => StatusCode::NOT_FOUND,
        Failed::Stale | Failed::Refused(_) | Failed::Token(_) => StatusCode::FORBIDDEN,
        Failed::Busy => StatusCode::SERVICE_UNAVAILABLE,
        Failed::Issuer(_) => StatusCode::BAD_GATEWAY,
    }
}

fn name(state: &State) -> String {
    format!("{}-sign-in", state.0.doors.origin.cookie())
}

/// Sets the cookie of the sign-in that is under way, for as many seconds.
fn with_pending(mut answer: Response, state: &State, value: &str, seconds: u64) -> Response {
    let secure = if state.0.doors.origin.is_secure() { "; Secure" } else { "" };
    let name = name(state);
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax{secure}; Max-Age={seconds}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    #[test]
    fn issuers_send_browsers_back_to_the_consoles_own_origin() {
        let origin = Origin::parse("https://console.example.org").unwrap();
        assert_eq!(redirect_uri(&origin), "https://console.example.org/sign-in/issuer/answer");
    }
}
