//! Checks the signed consents of a log, record by record, from the log alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{Proof, PublicKey, digest};

/// Most approvals that wait for a decision, as far as their requests are remembered.
const MAX_REQUESTS: usize = 100_000;

/// One record, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Name of its kind.
    pub kind: &'a str,
    pub approval_id: Option<&'a str>,
    pub details: &'a Value,
}

/// A decision of a log, and if it was signed as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consent {
    pub approval_id: String,
    pub principal: String,
    /// `approve` or `deny`.
    pub decision: String,
    /// Name of the passkey.
    pub passkey: String,
    /// Reason why the proof does not hold; `None` if it does.
    pub flaw: Option<String>,
}

struct Known {
    principal: String,
    name: String,
    public_key: PublicKey,
}

/// The passkeys and requests that a log has named so far.
#[derive(Default)]
pub struct Ledger {
    passkeys: BTreeMap<String, Known>,
    /// Digests of approvals that were asked for and not decided.
    requests: BTreeMap<String, String>,
    nonces: BTreeSet<String>,
}

impl Ledger {
    /// Takes the next record. Returns the decision in it, if it has a proof.
    pub fn take(&mut self, entry: Entry<'_>) -> Option<Consent> {
        let Entry { kind, approval_id, details } = entry;
        let text = |key: &str| details[key].as_str().unwrap_or_default().to_owned();
        match kind {
            "passkey_registered" => {
                let public_key = PublicKey::from_record(&details["public_key"])?;
                let known = Known { principal: text("principal"), name: text("name"), public_key };
                self.passkeys.insert(text("credential_id"), known);
                None
            }
            "passkey_removed" => {
                self.passkeys.remove(&text("credential_id"));
                None
            }
            "approval_requested" => {
                if self.requests.len() >= MAX_REQUESTS {
                    self.requests.pop_first();
                }
                self.requests.insert(approval_id?.to_owned(), text("digest"));
                None
            }
            "approval_voted" => self.consent(approval_id?, details),
            "approval_decided" => {
                let consent = self.consent(approval_id?, details);
                self.requests.remove(approval_id?);
                consent
            }
            _ => None,
        }
    }

    fn consent(&mut self, approval_id: &str, details: &Value) -> Option<Consent> {
        let vote = &details["vote"];
        let recorded = vote.get("proof")?;
        let text = |key: &str| vote[key].as_str().unwrap_or_default();
        let proof = serde_json::from_value::<Proof>(recorded.clone());
        let checked = match &proof {
            Ok(proof) => self.check(approval_id, details, proof),
            Err(_) => Err("the proof is malformed or was cut".to_owned()),
        };
        let passkey = proof.ok().and_then(|proof| self.passkeys.get(&proof.credential_id));
        Some(Consent {
            approval_id: approval_id.to_owned(),
            principal: text("principal").to_owned(),
            decision: text("choice").to_owned(),
            passkey: passkey.map_or_else(String::new, |known| known.name.clone()),
            flaw: checked.err(),
        })
    }

    fn check(&mut self, approval_id: &str, details: &Value, proof: &Proof) -> Result<(), String> {
        let says = |wrong: &str| Err(wrong.to_owned());
        let vote = &details["vote"];
        let text = |key: &str| vote[key].as_str().unwrap_or_default();
        let statement = &proof.statement;
        proof.verify().map_err(|flaw| flaw.to_string())?;
        if statement.approval_id != approval_id {
            return says("it is of another approval");
        }
        if self.requests.get(approval_id) != Some(&statement.digest) {
            return says("the log has no request with the digest that was signed");
        }
        if statement.principal != text("principal") || statement.decision != text("choice") {
            return says("the recorded decision is not the signed one");
        }
        if !details["remembered"].is_null() && statement.remember == "once" {
            return says("the recorded consent covers more than the signed one");
        }
        // A secret in a comment is hidden in the record, and its digest is not.
        if statement.comment != digest(text("comment")) && !text("comment").contains("[redacted:") {
            return says("the recorded comment is not the signed one");
        }
        let known = self.passkeys.get(&proof.credential_id);
        if known.is_none_or(|it| it.principal != statement.principal || it.public_key != proof.public_key) {
            return says("the log has no registration of this passkey for this principal");
        }
        if !self.nonces.insert(statement.nonce.clone()) {
            return says("the same signature is in an earlier record");
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
