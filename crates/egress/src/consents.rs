//! Consents to pushes of git that no server has answered.
//!
//! Ids name the content, so consent covers no other one. The server makes an update only if the ref has the old id, so the same push can
//! take effect once. Consent holds until a server has answered: a program, or a server's connection, may not have waited that long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use egress_rules::Narrowed;

use crate::waiting::Question;

/// Time for which consent to a push holds.
const HOLDS: Duration = Duration::from_secs(10 * 60);
/// Consents of a run that are known at the same time. The oldest is forgotten first.
const CONSENTS: usize = 16;

/// A consent to a push.
#[derive(Debug)]
struct Consent {
    question: Question,
    approval_id: String,
    /// The rules under which it was asked for.
    rules: Arc<Narrowed>,
    until: Instant,
}

/// The consents to pushes that no server has answered.
#[derive(Debug, Default)]
pub(crate) struct Consents(Vec<Consent>);

impl Consents {
    /// Keeps a consent for the same push under the same rules.
    pub(crate) fn keep(&mut self, question: Question, approval_id: &str, rules: Arc<Narrowed>, now: Instant) {
        if self.0.len() >= CONSENTS {
            self.0.remove(0);
        }
        self.0.push(Consent { question, approval_id: approval_id.to_owned(), rules, until: now + HOLDS });
    }

    /// Returns the approval that covers a push, if there is one.
    pub(crate) fn find(
        &mut self,
        question: &Question,
        rules: &Arc<Narrowed>,
        now: Instant,
    ) -> Option<String> {
        // Another policy, or a list that narrows the run, voids consent.
        self.0.retain(|consent| consent.until > now && Arc::ptr_eq(&consent.rules, rules));
        let found = self.0.iter().find(|consent| consent.question == *question);
        found.map(|consent| consent.approval_id.clone())
    }

    /// Forgets a consent, because a server has answered the push.
    pub(crate) fn used(&mut self, approval_id: &str) {
        self.0.retain(|consent| consent.approval_id != approval_id);
    }
}

#[cfg(test)]
#[path = "consents_tests.rs"]
mod tests;
