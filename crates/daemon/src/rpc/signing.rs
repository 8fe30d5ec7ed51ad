//! Translates decisions that a passkey signs between the API, the gateway and the passkeys.

use consent_proof::Assertion;
use gateway::{Approval, Choice, Remember};
use passkeys::Draft;
use wire::v1;

/// Returns a decision on an approval in the form that a passkey signs.
pub(super) fn draft(approval: &Approval, choice: Choice, comment: &str, remember: &Remember) -> Draft {
    let (remember, prefix) = match remember {
        Remember::Once => ("once", Vec::new()),
        Remember::Digest => ("digest", Vec::new()),
        Remember::Prefix(words) => ("prefix", words.clone()),
    };
    Draft {
        approval_id: approval.approval_id.clone(),
        digest: approval.digest.clone(),
        shown: approval.shown_digest(),
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
