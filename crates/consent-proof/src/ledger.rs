//! Checks the signed consents of a log, record by record, from the log alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::statement::PREFIX;
use crate::{Proof, PublicKey, digest, prefix};

/// Most approvals that wait for a decision, as far as their requests are remembered.
const MAX_REQUESTS: usize = 100_000;

/// One record, as far as it matters here.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// Name of its kind.
    pub kind: &'a str,
    pub approval_id: Option<&'a str>,
    /// Number of secrets that the record says were hidden in it.
    pub redactions: u32,
    pub details: &'a Value,
}

impl Entry<'_> {
    /// Returns true if these texts have marks of the redactor, and the record says that so many secrets were hidden. It
    /// has the texts so many times.
    ///
    /// Everybody can write a mark. Texts with more of them than the record hides secrets are compared as they are.
    fn hides<'t>(&self, texts: impl IntoIterator<Item = &'t str>, times: usize) -> bool {
        let marks = texts.into_iter().map(|text| text.matches(HIDDEN).count()).sum::<usize>() * times;
        marks > 0 && usize::try_from(self.redactions).is_ok_and(|hidden| hidden >= marks)
    }
}

/// A decision of a log that is signed or has to be, and if it was signed as it is recorded.
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

/// A request for consent.
struct Request {
    digest: String,
    /// Digest of the texts that reviewers are shown. `None` in a record of an older release.
    shown: Option<String>,
    /// True if consent to it has to be signed.
    needs_passkey: bool,
}

/// Mark of the redactor. The log hides a secret, and a digest in a signature is that of the whole text.
const HIDDEN: &str = "[redacted:";

/// The passkeys and requests that a log has named so far.
#[derive(Default)]
pub struct Ledger {
    passkeys: BTreeMap<String, Known>,
    /// Approvals that were asked for and not decided.
    requests: BTreeMap<String, Request>,
    /// Signed consents by their approvals, and the coverage that was signed. The record of a coverage beyond one call comes later.
    covering: BTreeMap<String, (String, Consent)>,
    nonces: BTreeSet<String>,
}

impl Ledger {
    /// Takes the next record. Returns the decision in it, if it has a proof or needs one.
    pub fn take(&mut self, entry: Entry<'_>) -> Option<Consent> {
        let Entry { kind, approval_id, details, .. } = entry;
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
                let needs_passkey = details["passkey"] == true;
                let shown = details.get("shown").map(|_| text("shown"));
                let request = Request { digest: text("digest"), shown, needs_passkey };
                self.requests.insert(approval_id?.to_owned(), request);
                None
            }
            "approval_voted" => self.consent(approval_id?, entry),
            "approval_decided" => {
                let consent = self.consent(approval_id?, entry);
                self.requests.remove(approval_id?);
                consent
            }
            "consent_remembered" => self.remembered(approval_id?, entry),
            _ => None,
        }
    }

    /// Returns a signed consent again if it is remembered for more than was signed.
    fn remembered(&mut self, approval_id: &str, entry: Entry<'_>) -> Option<Consent> {
        let (signed, consent) = self.covering.remove(approval_id)?;
        let covers = &entry.details["covers"];
        let words = serde_json::from_value::<Vec<String>>(covers["prefix"].clone()).ok();
        let is_signed = match words {
            // A secret in a word is hidden in the record.
            Some(words) if entry.hides(words.iter().map(String::as_str), 1) => signed.starts_with(PREFIX),
            Some(words) => prefix(&words) == signed,
            None => signed == "digest" && covers["digest"].is_string(),
        };
        let flaw = Some("the remembered consent covers more than the signed one".to_owned());
        (!is_signed).then_some(Consent { flaw, ..consent })
    }

    fn consent(&mut self, approval_id: &str, entry: Entry<'_>) -> Option<Consent> {
        let details = entry.details;
        let vote = &details["vote"];
        let text = |key: &str| vote[key].as_str().unwrap_or_default();
        let Some(recorded) = vote.get("proof") else {
            let needs_passkey = self.requests.get(approval_id).is_some_and(|request| request.needs_passkey);
            return (needs_passkey && text("choice") == "approve").then(|| Consent {
                approval_id: approval_id.to_owned(),
                principal: text("principal").to_owned(),
                decision: text("choice").to_owned(),
                passkey: String::new(),
                flaw: Some("it has to be signed, and is not".to_owned()),
            });
        };
        let proof = serde_json::from_value::<Proof>(recorded.clone());
        let checked = match &proof {
            Ok(proof) => self.check(approval_id, entry, proof),
            Err(_) => Err("the proof is malformed or was cut".to_owned()),
        };
        let passkey = proof.as_ref().ok().and_then(|proof| self.passkeys.get(&proof.credential_id));
        let consent = Consent {
            approval_id: approval_id.to_owned(),
            principal: text("principal").to_owned(),
            decision: text("choice").to_owned(),
            passkey: passkey.map_or_else(String::new, |known| known.name.clone()),
            flaw: checked.err(),
        };
        if let Some(proof) = proof.ok().filter(|_| text("choice") == "approve") {
            if self.covering.len() >= MAX_REQUESTS {
                self.covering.pop_first();
            }
            self.covering.insert(approval_id.to_owned(), (proof.statement.remember, consent.clone()));
        }
        Some(consent)
    }

    fn check(&mut self, approval_id: &str, entry: Entry<'_>, proof: &Proof) -> Result<(), String> {
        let says = |wrong: &str| Err(wrong.to_owned());
        let details = entry.details;
        let vote = &details["vote"];
        let text = |key: &str| vote[key].as_str().unwrap_or_default();
        let statement = &proof.statement;
        proof.verify().map_err(|flaw| flaw.to_string())?;
        if statement.approval_id != approval_id {
            return says("it is of another approval");
        }
        let request = self.requests.get(approval_id).filter(|request| request.digest == statement.digest);
        let Some(request) = request else {
            return says("the log has no request with the digest that was signed");
        };
        if request.shown.as_ref().is_some_and(|shown| *shown != statement.shown) {
            return says("the texts of the request are not those that were signed");
        }
        if statement.principal != text("principal") || statement.decision != text("choice") {
            return says("the recorded decision is not the signed one");
        }
        if !details["remembered"].is_null() && statement.remember == "once" {
            return says("the recorded consent covers more than the signed one");
        }
        // A secret in a comment is hidden in the record, and its digest is not. A record that settles has the comment twice.
        let (comment, times) = (text("comment"), if details["comment"].is_string() { 2 } else { 1 });
        if statement.comment != digest(comment) && !entry.hides([comment], times) {
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
