//! Decisions that are signed with a passkey.

use std::time::Duration;

use consent_proof::{Assertion, Proof, Statement, digest, prefix};
use operations::Reason;
use refusal::Refusal;
use serde_json::Value;
use timestamp::UnixMillis;

use super::Passkeys;
use super::challenges::{Nonce, Purpose};
use super::passkey::Passkey;

/// Time that a reviewer has to use the passkey.
const LIFE: Duration = Duration::from_secs(120);

/// A decision that is about to be signed, as the daemon sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub approval_id: String,
    /// Digest of everything that the approval is bound to.
    pub digest: String,
    /// Digest of the texts that the reviewer is shown.
    pub shown: String,
    /// `approve` or `deny`.
    pub decision: &'static str,
    pub comment: String,
    /// `once`, `digest`, or `prefix`.
    pub remember: &'static str,
    pub prefix: Vec<String>,
}

/// Options for the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub challenge: Vec<u8>,
    pub rp_id: String,
    /// Passkeys of the principal, lower-case hex.
    pub credential_ids: Vec<String>,
}

/// A decision whose signature was verified, in the form of the record. Only this crate makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed(Value);

impl Signed {
    /// Returns the proof for the record.
    pub fn into_record(self) -> Value {
        self.0
    }
}

impl Passkeys {
    /// Begins a signed decision.
    pub fn begin_consent(&self, principal: &str, draft: &Draft) -> Result<Asked, Refusal> {
        let party = self.party()?;
        let mine: Vec<String> = self
            .list(Some(principal))
            .into_iter()
            .filter(|passkey| !passkey.ended)
            .map(|it| it.credential_id)
            .collect();
        if mine.is_empty() {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                "you have no passkey: register one in the console",
            ));
        }
        let nonce = self.challenges.begin(principal, Purpose::Consent(draft.approval_id.clone()), LIFE)?;
        let challenge = draft.statement(principal, &nonce).challenge().to_vec();
        Ok(Asked { challenge, rp_id: party.id.clone(), credential_ids: mine })
    }

    /// Verifies the signature over a decision, once.
    pub async fn verify_consent(
        &self,
        principal: &str,
        draft: &Draft,
        (credential_id, assertion): &(Vec<u8>, Assertion),
    ) -> Result<Signed, Refusal> {
        self.party()?;
        let _changing = self.changing.lock().await;
        let nonce = self.challenges.take(principal, Purpose::Consent(draft.approval_id.clone()))?;
        let statement = draft.statement(principal, &nonce);
        let (proof, used) = self.signed_by(principal, credential_id, statement, assertion)?;
        self.keep(&used).await?;
        self.put(used);
        let record = serde_json::to_value(&proof);
        record.map(Signed).map_err(|error| Refusal::internal("recording the proof", &error))
    }

    /// Verifies that a passkey of this principal has signed a statement. Returns the proof and the passkey's new state.
    pub(crate) fn signed_by(
        &self,
        principal: &str,
        credential_id: &[u8],
        statement: Statement,
        assertion: &Assertion,
    ) -> Result<(Proof, Passkey), Refusal> {
        let party = self.party()?;
        let mut passkey = self.of(principal, credential_id)?;
        let key = (passkey.credential_id.clone(), passkey.public_key.clone());
        let proof = Proof::new(statement, party, key, assertion);
        let refused = |why: &dyn std::fmt::Display| {
            Refusal::new(Reason::PermissionDenied, format!("the passkey's signature does not count: {why}"))
                .with("proof", "passkey")
        };
        let presence = proof.verify().map_err(|flaw| refused(&flaw))?;
        let counts = presence.sign_count != 0 || passkey.sign_count != 0;
        if counts && presence.sign_count <= passkey.sign_count {
            tracing::warn!(
                principal = passkey.principal,
                passkey = passkey.name,
                "the counter of a passkey did not grow: there may be a copy of it"
            );
            return Err(refused(
                &"its counter did not grow, so there may be a copy of it; ask an operator to remove it",
            ));
        }
        passkey.sign_count = presence.sign_count;
        passkey.used_at = Some(UnixMillis::now());
        Ok((proof, passkey))
    }
}

impl Draft {
    fn statement(&self, principal: &str, nonce: &Nonce) -> Statement {
        let remember = match self.remember {
            "prefix" => prefix(&self.prefix),
            other => other.to_owned(),
        };
        Statement {
            approval_id: self.approval_id.clone(),
            digest: self.digest.clone(),
            shown: self.shown.clone(),
            principal: principal.to_owned(),
            decision: self.decision.to_owned(),
            comment: digest(&self.comment),
            remember,
            nonce: hex::encode(nonce),
        }
    }
}
