//! Writes `summary.json`, which tells people what a bundle holds, what is missing, and why.

use std::collections::{BTreeMap, BTreeSet};

use audit::{Event, Kind, Record as AuditRecord};
use identity::Principal;
use redact::Redactor;
use refusal::Refusal;
use runs::record::Record;
use serde_json::{Value, json};

use super::diff::Diff;

/// Maximum number of approvals in the summary. The records hold all of them.
const MOST_APPROVALS: usize = 10_000;
/// Maximum number of policies, and of images, in the summary.
const MOST_NAMES: usize = 64;

/// Summary of the run's records, built while they are read.
#[derive(Default)]
pub(super) struct Summary {
    records: u64,
    is_whole: bool,
    /// Sequence number and time of the first and of the last record.
    range: Option<[(u64, String); 2]>,
    policies: BTreeSet<String>,
    images: BTreeSet<String>,
    calls: BTreeMap<&'static str, u64>,
    approvals: BTreeMap<String, Value>,
}

impl Summary {
    /// Adds one record.
    pub(super) fn take(&mut self, record: AuditRecord) {
        let AuditRecord { sequence, time, event, .. } = record;
        let here = (sequence, time.to_string());
        if let Some([_, last]) = &mut self.range {
            *last = here;
        } else {
            self.is_whole = event.kind == Kind::RunCreated;
            self.range = Some([here.clone(), here]);
        }
        self.records += 1;
        let digest = event.decision.as_ref().and_then(|decision| decision.policy_digest.clone());
        name(&mut self.policies, digest);
        name(&mut self.images, event.image.clone());
        if event.kind == Kind::CallReceipt
            && let Some(outcome) = &event.outcome
        {
            *self.calls.entry(outcome.status.name()).or_default() += 1;
        }
        self.approval(sequence, &event);
    }

    fn approval(&mut self, sequence: u64, event: &Event) {
        let Some(id) = &event.approval_id else { return };
        let nothing = Value::Null;
        let details = event.details.as_ref().unwrap_or(&nothing);
        if event.kind == Kind::ApprovalRequested && self.approvals.len() < MOST_APPROVALS {
            let approval = json!({
                "approval_id": id, "call_id": event.call_id, "operation": event.operation, "agent_id": event.agent_id,
                "requested_by": event.principal, "rule": details["rule"], "risk": details["risk"],
                "justification": details["justification"], "digest": details["digest"], "state": "PENDING",
                "votes": [], "sequences": [],
            });
            self.approvals.insert(id.clone(), approval);
        }
        let Some(approval) = self.approvals.get_mut(id) else { return };
        if let (Some(votes), false) = (approval["votes"].as_array_mut(), details["vote"].is_null()) {
            votes.push(details["vote"].clone());
        }
        if event.kind == Kind::ApprovalDecided {
            approval["state"] = details["state"].clone();
            approval["comment"] = details["comment"].clone();
        }
        let is_own = matches!(
            event.kind,
            Kind::ApprovalRequested | Kind::ApprovalVoted | Kind::ApprovalReminded | Kind::ApprovalDecided
        );
        if let (Some(sequences), true) = (approval["sequences"].as_array_mut(), is_own) {
            sequences.push(sequence.into());
        }
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Returns true if the first record is the creation of the run, so that no earlier one is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Returns the digests of the policies that decided the run's calls.
    pub(super) fn policies(&self) -> impl Iterator<Item = &str> {
        self.policies.iter().map(String::as_str)
    }

    /// Returns notes on everything that is missing from the bundle.
    pub(super) fn notes(&self, missing_policies: &[&str], diff: &Diff, removed: u64) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.is_whole {
            notes.push(format!(
                "the first records of this run are not in it: records of the log up to {removed} were removed"
            ));
        }
        if !missing_policies.is_empty() {
            notes.push(format!(
                "not included, because they are no longer stored: the policies {}",
                missing_policies.join(" ")
            ));
        }
        notes.extend(diff.why_not.clone());
        notes
    }

    /// Returns the content of `summary.json`.
    pub(super) fn text(
        &self,
        principal: &Principal,
        record: Option<&Record>,
        missing_policies: &[&str],
        diff: &Diff,
        removed: u64,
    ) -> Vec<u8> {
        let end = |at: usize| {
            self.range.as_ref().map(|range| json!({ "sequence": range[at].0, "time": range[at].1 }))
        };
        let summary = json!({
            "made_by": principal.name,
            "version": env!("CARGO_PKG_VERSION"),
            "run_is_kept": record.is_some(),
            "records": {
                "count": self.records, "first": end(0), "last": end(1), "from_beginning": self.is_whole,
                "log_removed_up_to": removed,
            },
            "image_digests": self.images,
            "policies": { "digests": self.policies, "missing": missing_policies },
            "calls": self.calls,
            "approvals": self.approvals.values().collect::<Vec<_>>(),
            "diff": { "members": diff.names(), "redacted": diff.redacted, "why_not": diff.why_not },
        });
        // JSON values of texts and numbers always serialise.
        serde_json::to_vec_pretty(&summary).unwrap_or_default()
    }
}

/// Returns `run.json`: the run as the API shows it, with secrets redacted.
pub(super) fn run(record: &Record, redactor: &Redactor) -> Result<Vec<u8>, Refusal> {
    let text = serde_json::to_value(record.to_wire()).and_then(|mut run| {
        redactor.value(&mut run);
        serde_json::to_vec_pretty(&run)
    });
    text.map_err(|error| Refusal::internal("showing the run", &error))
}

fn name(names: &mut BTreeSet<String>, found: Option<String>) {
    if let Some(found) = found.filter(|_| names.len() < MOST_NAMES) {
        names.insert(found);
    }
}
