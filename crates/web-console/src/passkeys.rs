//! Passkeys of the viewer, and their registration.
//!
//! The browser talks to the authenticator in `assets/passkey.js`.

use axum::Router;
use axum::response::Response;
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::json;
use wire::v1::{BeginRegistrationRequest, FinishRegistrationRequest, ListPasskeysRequest, Passkey};

use crate::State;
use crate::api::quick;
use crate::approvals::moment;
use crate::ceremony::{answer, bytes, proof};
use crate::error::{Problem, redirect};
use crate::form::Checked;
use crate::layout::{csrf, page};
use crate::shown::line;
use crate::viewer::Viewer;

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .route("/passkeys", get(list))
        .route("/passkeys/begin", post(begin))
        .route("/passkeys/finish", post(finish))
}

async fn list(viewer: Viewer) -> Result<Response, Problem> {
    let listed = viewer.services.passkeys().list_passkeys(quick(ListPasskeysRequest {})).await?;
    // Operators and auditors get those of all.
    let mut passkeys = listed.into_inner().passkeys;
    passkeys.retain(|passkey| passkey.principal == viewer.name);
    Ok(page("Passkeys", Some(&viewer), main(&viewer, &passkeys)))
}

fn main(viewer: &Viewer, passkeys: &[Passkey]) -> Markup {
    html! {
        h1 { "Passkeys" }
        p {
            "With a passkey you sign what you approve: your device signs the digest of the request that was shown. The signature goes into \
             the record, so that your consent can be proved, and no other person can give it in your name."
        }
        @if passkeys.is_empty() { p { "You have no passkey." } }
        @else {
            ul {
                @for passkey in passkeys {
                    li {
                        (line(&passkey.name)) ", " (line(&passkey.algorithm))
                        @if let Some(at) = &passkey.created_at { ", registered " (moment(at)) }
                        @if let Some(at) = &passkey.used_at { ", last used " (moment(at)) }
                    }
                }
            }
            p { "To add another one you sign with one that you have. An operator removes one: " code { "coffer passkey remove" } "." }
        }
        @if viewer.may_decide() {
            form #register.card method="post" action="/passkeys/finish" aria-labelledby="register-title" {
                h2 #register-title { "Register a passkey" }
                (csrf(viewer))
                label for="name" { "Name, such as phone" }
                input #name type="text" name="name" maxlength="64" pattern="[A-Za-z0-9._ \\-]+" autocomplete="off" required;
                p.buttons { button type="submit" { "Register" } }
                p #passkey-state role="status" { noscript { "A passkey needs JavaScript." } }
            }
        }
        p { a href="/push" { "Notices in this browser" } }
        script src="/assets/passkey.js" defer {}
    }
}

async fn begin(checked: Checked) -> Response {
    let viewer = &checked.viewer;
    let begun = viewer.services.passkeys().begin_registration(quick(BeginRegistrationRequest {})).await;
    answer(begun.map(|begun| {
        let begun = begun.into_inner();
        json!({
            "challenge": hex::encode(begun.challenge),
            "rp_id": begun.rp_id,
            "user_id": hex::encode(begun.user_id),
            "user_name": begun.user_name,
            "exclude": begun.exclude.iter().map(hex::encode).collect::<Vec<_>>(),
            "proof_challenge": hex::encode(begun.proof_challenge),
        })
    }))
}

async fn finish(checked: Checked) -> Result<Response, Problem> {
    let Checked { viewer, fields } = &checked;
    let request = FinishRegistrationRequest {
        name: fields.get("name").to_owned(),
        authenticator_data: bytes(fields, "new_authenticator_data")?,
        client_data_json: bytes(fields, "new_client_data_json")?,
        proof: proof(fields)?,
    };
    viewer.services.passkeys().finish_registration(quick(request)).await?;
    Ok(redirect("/passkeys"))
}
