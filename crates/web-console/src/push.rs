//! Notices on the viewer's phone: the page that subscribes a browser, and the worker that shows them.

use axum::Router;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use tonic::codegen::http::header::CONTENT_TYPE;
use wire::v1::{
    GetPushKeyRequest, ListSubscriptionsRequest, SubscribeRequest, Subscription, UnsubscribeRequest,
};

use crate::State;
use crate::api::quick;
use crate::approvals::moment;
use crate::ceremony::bytes;
use crate::error::{Problem, redirect};
use crate::form::Checked;
use crate::layout::{csrf, page};
use crate::shown::line;
use crate::viewer::Viewer;

const WORKER: &str = include_str!("../assets/worker.js");
const SCRIPT: &str = include_str!("../assets/passkey.js");

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .route("/push", get(list))
        .route("/push/subscribe", post(subscribe))
        .route("/push/unsubscribe", post(unsubscribe))
        // At the root, as a worker shows notices for the paths beside its own.
        .route("/worker.js", get(async || script(WORKER)))
        .route("/assets/passkey.js", get(async || script(SCRIPT)))
}

fn script(content: &'static str) -> Response {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], content).into_response()
}

async fn list(viewer: Viewer) -> Result<Response, Problem> {
    let key = viewer.services.push().get_push_key(quick(GetPushKeyRequest {})).await?.into_inner().public_key;
    let listed = viewer.services.push().list_subscriptions(quick(ListSubscriptionsRequest {})).await?;
    let main = main(&viewer, &hex::encode(key), &listed.into_inner().subscriptions);
    Ok(page("Passkeys", Some(&viewer), main))
}

fn main(viewer: &Viewer, key: &str, subscriptions: &[Subscription]) -> Markup {
    html! {
        h1 { "Notices" }
        p {
            "This browser can tell you when an approval waits, also while the page is closed. A notice has nothing but a link to that approval, \
             encrypted for this browser. The link works once, within ten minutes."
        }
        @if subscriptions.is_empty() { p { "None of your browsers gets notices." } }
        @else {
            ul {
                @for one in subscriptions {
                    li {
                        (line(&one.name)) ", by " (line(&one.host))
                        @if let Some(at) = &one.expires_at { ", until " (moment(at)) }
                        form.inline method="post" action="/push/unsubscribe" {
                            (csrf(viewer))
                            input type="hidden" name="id" value=(one.subscription_id);
                            button type="submit" { "End " (line(&one.name)) }
                        }
                    }
                }
            }
        }
        form #subscribe.card method="post" action="/push/subscribe" data-key=(key) aria-labelledby="subscribe-title" {
            h2 #subscribe-title { "Notices in this browser" }
            (csrf(viewer))
            label for="name" { "Name, such as phone" }
            input #name type="text" name="name" maxlength="64" pattern="[A-Za-z0-9._ \\-]+" autocomplete="off" required;
            p.buttons { button type="submit" { "Get notices" } }
            p #passkey-state role="status" { noscript { "Notices need JavaScript." } }
        }
        script src="/assets/passkey.js" defer {}
    }
}

async fn subscribe(checked: Checked) -> Result<Response, Problem> {
    let Checked { viewer, fields } = &checked;
    let request = SubscribeRequest {
        name: fields.get("name").to_owned(),
        endpoint: fields.get("endpoint").to_owned(),
        p256dh: bytes(fields, "p256dh")?,
        auth: bytes(fields, "auth")?,
    };
    viewer.services.push().subscribe(quick(request)).await?;
    Ok(redirect("/push"))
}

async fn unsubscribe(checked: Checked) -> Result<Response, Problem> {
    let Checked { viewer, fields } = &checked;
    let request = UnsubscribeRequest { subscription_id: fields.get("id").to_owned() };
    viewer.services.push().unsubscribe(quick(request)).await?;
    Ok(redirect("/push"))
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, WORKER};

    #[test]
    fn the_scripts_make_no_markup_of_text_and_load_nothing() {
        for script in [SCRIPT, WORKER] {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "Function(",
                "http",
                "import",
            ] {
                assert!(!script.contains(word), "{word}");
            }
            assert!(script.lines().count() < 200);
        }
    }
}
