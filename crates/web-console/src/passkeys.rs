//! Passkeys of the viewer: their registration, and the challenge for a decision that is signed.
//!
//! The browser talks to the authenticator in `assets/passkey.js`. Answers for the script are JSON with bytes in hexadecimal, or a plain
//! sentence that says why not.

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use maud::{Markup, html};
use serde_json::{Value, json};
use tonic::codegen::http::StatusCode;
use tonic::codegen::http::header::CONTENT_TYPE;
use wire::v1::{
    BeginConsentRequest, BeginRegistrationRequest, FinishRegistrationRequest, ListPasskeysRequest, Passkey,
    PasskeyProof,
};

use crate::State;
use crate::api::quick;
use crate::approvals::{Ballot, moment};
use crate::error::{Problem, redirect, status_of};
use crate::form::{Checked, Fields};
use crate::layout::{csrf, page};
use crate::shown::line;
use crate::viewer::Viewer;

pub(crate) fn routes() -> Router<State> {
    Router::new()
        .route("/passkeys", get(list))
        .route("/passkeys/begin", post(begin))
        .route("/passkeys/finish", post(finish))
        .route("/passkeys/consent/{id}", post(consent))
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

async fn consent(Path(id): Path<String>, checked: Checked) -> Response {
    let Checked { viewer, fields } = &checked;
    let ballot = match Ballot::parse(fields) {
        Ok(ballot) => ballot,
        Err(problem) => return problem.into_response(),
    };
    let request = BeginConsentRequest {
        approval_id: id,
        decision: ballot.decision.into(),
        comment: ballot.comment,
        remember: ballot.remember.into(),
        prefix: ballot.prefix,
    };
    let begun = viewer.services.passkeys().begin_consent(quick(request)).await;
    answer(begun.map(|begun| {
        let begun = begun.into_inner();
        json!({
            "challenge": hex::encode(begun.challenge),
            "rp_id": begun.rp_id,
            "ids": begun.credential_ids.iter().map(hex::encode).collect::<Vec<_>>(),
        })
    }))
}

/// Returns an answer for the script.
pub(crate) fn answer(result: Result<Value, tonic::Status>) -> Response {
    match result {
        Ok(value) => ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response(),
        Err(status) => {
            let plain = [(CONTENT_TYPE, "text/plain; charset=utf-8")];
            (status_of(status.code()), plain, status.message().to_owned()).into_response()
        }
    }
}

/// Returns the answer of the authenticator in a form, if it has one.
pub(crate) fn proof(fields: &Fields) -> Result<Option<PasskeyProof>, Problem> {
    if fields.get("credential_id").is_empty() {
        return Ok(None);
    }
    Ok(Some(PasskeyProof {
        credential_id: bytes(fields, "credential_id")?,
        authenticator_data: bytes(fields, "authenticator_data")?,
        client_data_json: bytes(fields, "client_data_json")?,
        signature: bytes(fields, "signature")?,
    }))
}

/// Returns the bytes of a field in hexadecimal.
pub(crate) fn bytes(fields: &Fields, name: &str) -> Result<Vec<u8>, Problem> {
    let bad = |_| Problem::Bad(StatusCode::BAD_REQUEST, "A field of the browser's answer is malformed: try again.");
    hex::decode(fields.get(name)).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::{bytes, proof};
    use crate::form::Fields;

    #[test]
    fn a_proof_is_whole_or_absent_and_hexadecimal() {
        let parse = |text: &str| Fields::parse(text.as_bytes());
        assert!(proof(&parse("comment=x")).unwrap().is_none());
        let whole = parse("credential_id=ab&authenticator_data=01&client_data_json=7b7d&signature=30");
        let found = proof(&whole).unwrap().unwrap();
        assert_eq!((found.credential_id, found.client_data_json), (vec![0xab], b"{}".to_vec()));
        for bad in ["credential_id=a", "credential_id=zz", "credential_id=ab&signature=%00"] {
            assert!(proof(&parse(bad)).is_err(), "{bad}");
        }
        assert!(bytes(&parse("a=0"), "a").is_err());
    }
}
