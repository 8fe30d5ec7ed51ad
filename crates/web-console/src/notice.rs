//! Follows links in notices.
//!
//! A link is followed with a form, because programs look at links before people do. Its session has the page of the approval, which
//! shows the whole request before it takes an answer, and no other page.

use axum::extract::State as Extracted;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use maud::html;
use serde_json::json;
use timestamp::UnixMillis;
use tonic::codegen::http::{HeaderMap, StatusCode, Uri};

use crate::State;
use crate::connection::Connection;
use crate::doors::OneApproval;
use crate::error::{Problem, redirect};
use crate::form::Fields;
use crate::layout::page;
use crate::shown::line;
use crate::sign_in::{end_earlier, with_cookie};

pub(crate) fn routes() -> Router<State> {
    Router::new().route("/notice", get(ask).post(follow))
}

async fn ask(Extracted(state): Extracted<State>, uri: Uri) -> Result<Response, Problem> {
    let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
    let code = query.get("code");
    let name = state.0.doors.notices.principal(code, UnixMillis::now()).ok_or_else(used_up)?;
    let main = html! {
        h1 { "An approval waits" }
        form.card method="post" action="/notice" {
            p { "The link opens this one approval, once, as " (line(&name)) "." }
            input type="hidden" name="code" value=(code);
            button type="submit" autofocus { "Show the request" }
        }
    };
    Ok(page("Approvals", None, main))
}

async fn follow(
    Extracted(state): Extracted<State>,
    Extension(connection): Extension<Connection>,
    headers: HeaderMap,
    fields: Fields,
) -> Result<Response, Problem> {
    let now = UnixMillis::now();
    let link = state.0.doors.notices.take(fields.get("code"), now).ok_or_else(used_up)?;
    let OneApproval { approval, run } = link.opens;
    let identity = state.0.access.identify(&link.principal, &run, link.made_at).await;
    let identity = identity.ok_or_else(used_up)?;
    let details = json!({
        "state": "opened",
        "by": "notice",
        "address": connection.address,
        "approval_id": approval,
    });
    state.0.access.record(&link.principal, details).await?;
    connection.slot.prove();
    let to = format!("/approvals/{approval}");
    end_earlier(&state, &headers).await;
    let (cookie, _) = state.0.doors.sessions.open_for(identity, link.principal, Some(approval), now);
    Ok(with_cookie(redirect(&to), &state, &cookie, ""))
}

fn used_up() -> Problem {
    let message = "The link was used, its ten minutes are over, or you may no longer decide. Sign in to see what waits.";
    Problem::Bad(StatusCode::FORBIDDEN, message)
}
