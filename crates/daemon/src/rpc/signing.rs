//! Translates decisions that a passkey signs between the API, the gateway and the passkeys.

use consent_proof::{Assertion, digest};
use gateway::{Approval, Choice, Remember};
use passkeys::Draft;
use serde_json::json;
use wire::v1;

/// Returns a decision on an approval in the form that a passkey signs.
pub(super) fn draft(approval: &Approval, choice: Choice, comment: &str, remember: &Remember) -> Draft {
    let (remember, prefix) = match remember {
        Remember::Once => ("once", Vec::new()),
        Remember::Digest => ("digest", Vec::new()),
        Remember::Prefix(words) => ("prefix", words.clone()),
    };
    // In the order of the page. Each text is as reviewers get it, with secrets hidden.
    let shown = json!([
        approval.operation,
        approval.operation_json,
        approval.preview,
        approval.justification,
        approval.risk.as_str(),
        approval.rule,
        approval.requested_by,
        approval.agent_id,
        approval.role,
        approval.profile,
        approval.run_id,
    ]);
    Draft {
        approval_id: approval.approval_id.clone(),
        digest: approval.digest.clone(),
        shown: digest(&shown.to_string()),
        decision: choice.as_str(),
        comment: comment.to_owned(),
        remember,
        prefix,
    }
}

/// Returns the id of a passkey and its answer.
pub(super) fn assertion(proof: v1::PasskeyProof) -> (Vec<u8>, Assertion) {
    let v1::PasskeyProof { credential_id, authenticator_data, client_data_json, signature } = proof;
    (credential_id, Assertion { authenticator_data, client_data_json, signature })
}
