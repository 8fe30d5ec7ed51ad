//! Links in notices: each opens one approval for one principal, once.
//!
//! A link is followed with a form, because programs look at links before people do. Its session has the page of the approval, which
//! shows the whole request before it takes an answer, and no other page.

use std::collections::HashMap;

use axum::extract::State as Extracted;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Router};
use maud::html;
use parking_lot::Mutex;
use serde_json::json;
use timestamp::UnixMillis;
use tonic::codegen::http::{StatusCode, Uri};

use crate::State;
use crate::error::{Problem, redirect};
use crate::form::Fields;
use crate::layout::page;
use crate::serve::Connection;
use crate::session::{key_of, secret};
use crate::shown::line;
use crate::sign_in::with_cookie;

/// Life of a link, milliseconds.
const LIFE: u64 = 10 * 60 * 1_000;
/// Most links that wait, and of one principal.
const MOST: usize = 4_096;
const MOST_OF_ONE: usize = 64;

/// The links that wait for their use, by the SHA-256 of their codes.
#[derive(Default)]
pub(crate) struct NoticeLinks(Mutex<HashMap<[u8; 32], Waiting>>);

struct Waiting {
    principal: String,
    approval: String,
    run: String,
    ends_at: UnixMillis,
}

impl NoticeLinks {
    /// Makes a code. The oldest one of the principal ends if it has too many.
    pub(crate) fn make(
        &self,
        principal: &str,
        (approval, run): (&str, &str),
        now: UnixMillis,
    ) -> Option<String> {
        let code = secret();
        let mut links = self.0.lock();
        links.retain(|_, link| link.ends_at > now);
        if links.values().filter(|link| link.principal == principal).count() >= MOST_OF_ONE {
            let oldest = links.iter().filter(|(_, link)| link.principal == principal);
            let oldest = oldest.min_by_key(|(_, link)| link.ends_at.0).map(|(key, _)| *key);
            oldest.and_then(|key| links.remove(&key));
        }
        if links.len() >= MOST {
            return None;
        }
        let link = Waiting {
            principal: principal.to_owned(),
            approval: approval.to_owned(),
            run: run.to_owned(),
            ends_at: UnixMillis(now.0.saturating_add(LIFE)),
        };
        links.insert(key_of(&code), link);
        Some(code)
    }

    /// Returns the principal of a link, which stays.
    fn principal(&self, code: &str, now: UnixMillis) -> Option<String> {
        let links = self.0.lock();
        links.get(&key_of(code)).filter(|link| link.ends_at > now).map(|link| link.principal.clone())
    }

    /// Takes a link, which opens nothing from then on.
    fn take(&self, code: &str, now: UnixMillis) -> Option<Waiting> {
        self.0.lock().remove(&key_of(code)).filter(|link| link.ends_at > now)
    }
}

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
    fields: Fields,
) -> Result<Response, Problem> {
    let now = UnixMillis::now();
    let link = state.0.doors.notices.take(fields.get("code"), now).ok_or_else(used_up)?;
    let identity = state.0.access.identify(&link.principal, &link.run).await.ok_or_else(used_up)?;
    let details = json!({
        "state": "opened",
        "by": "notice",
        "address": connection.address,
        "approval_id": link.approval,
    });
    state.0.access.record(&link.principal, details).await?;
    connection.slot.prove();
    let to = format!("/approvals/{}", link.approval);
    let (cookie, _) = state.0.doors.sessions.open_for(identity, link.principal, Some(link.approval), now);
    Ok(with_cookie(redirect(&to), &state, &cookie, ""))
}

fn used_up() -> Problem {
    let message = "The link was used, its ten minutes are over, or you may no longer decide. Sign in to see what waits.";
    Problem::Bad(StatusCode::FORBIDDEN, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(1_000_000);

    #[test]
    fn a_link_opens_its_approval_once_within_its_time() {
        let links = NoticeLinks::default();
        let code = links.make("uid:1", ("a", "r"), START).unwrap();
        assert_eq!(links.principal(&code, START).as_deref(), Some("uid:1"));
        assert!(links.take("", START).is_none() && links.take(&code[..63], START).is_none());
        let taken = links.take(&code, START).unwrap();
        assert_eq!((taken.approval.as_str(), taken.run.as_str()), ("a", "r"));
        assert!(links.take(&code, START).is_none() && links.principal(&code, START).is_none());
        let late = links.make("uid:1", ("a", "r"), START).unwrap();
        assert!(links.take(&late, UnixMillis(START.0 + LIFE)).is_none());
    }

    #[test]
    fn links_are_bounded_and_one_principal_ends_only_its_own() {
        let links = NoticeLinks::default();
        let other = links.make("uid:2", ("a", "r"), START).unwrap();
        let first = links.make("uid:1", ("a", "r"), START).unwrap();
        for nr in 1..=MOST_OF_ONE as u64 {
            links.make("uid:1", ("a", "r"), UnixMillis(START.0 + nr)).unwrap();
        }
        assert!(links.take(&first, START).is_none() && links.take(&other, START).is_some());
        for nr in 0..MOST {
            links.make(&format!("uid:x{nr}"), ("a", "r"), START);
        }
        assert!(links.make("uid:more", ("a", "r"), START).is_none());
    }
}
