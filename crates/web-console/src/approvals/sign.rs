//! The challenge for a decision that is signed with a passkey.

use axum::extract::Path;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use wire::v1::BeginConsentRequest;

use super::ballot::Ballot;
use crate::api::quick;
use crate::ceremony::answer;
use crate::form::Checked;

pub(super) async fn begin(Path(id): Path<String>, checked: Checked) -> Response {
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
