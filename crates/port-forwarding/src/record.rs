//! Builds the two records of a connection. They have no byte of it.

use std::time::Instant;

use audit::{Decision, Event, Kind, Outcome, Status, Usage, Verdict};
use identity::{ConnectionId, Principal};
use policy::Policy;
use runs::Run;
use serde_json::json;
use timestamp::micros;
use wire::v1::forward_closed::Reason;

use super::start::Start;
use super::transfer::End;

/// Content that both records have in common.
pub(super) struct Chapter {
    pub(super) connection: ConnectionId,
    profile: String,
    common: Event,
    began: Instant,
}

impl Chapter {
    pub(super) fn new(start: Start, principal: &Principal, run: &Run) -> Self {
        let connection = ConnectionId::new();
        let spec = run.spec();
        let mut details = json!({ "connection": connection.to_string(), "port": start.port });
        if principal.run.is_some() {
            details["via"] = "run_token".into();
        }
        let common = Event::new(Kind::ForwardIntent)
            .run(start.run.to_string())
            .principal(&principal.name)
            .agent(&spec.agent_id)
            .details(details);
        Self { connection, profile: spec.profile.clone(), common, began: Instant::now() }
    }

    /// Returns the record that is on disk before the first byte.
    pub(super) fn intent(&self, policy: &Policy) -> Event {
        let decision = Decision::new(Verdict::Allow).rule(rule(&self.profile)).policy_digest(policy.digest());
        self.common.clone().decision(decision)
    }

    /// Returns the record of the end. The bytes are those to the server and those of the server.
    pub(super) fn receipt(&self, end: &End, bytes_in: u64, bytes_out: u64) -> Event {
        let outcome = match end {
            // A client may leave at any time.
            End::Closed(reason @ (Reason::Finished | Reason::Disconnected)) => {
                Outcome::new(Status::Succeeded).reason(reason.as_str_name())
            }
            End::Closed(reason) => Outcome::new(Status::Failed).reason(reason.as_str_name()),
            End::WithRun(refusal) => {
                Outcome::new(Status::Failed).reason(Reason::RunEnded.as_str_name()).message(&refusal.message)
            }
            End::Refused(refusal) => {
                Outcome::new(Status::Failed).reason(refusal.reason.as_str()).message(&refusal.message)
            }
        };
        let usage = Usage { bytes_in, bytes_out, ..Usage::default() };
        let mut event = self.common.clone().outcome(outcome).usage(usage);
        event.kind = Kind::ForwardReceipt;
        event.duration_us = Some(micros(self.began.elapsed()));
        event
    }
}

/// Returns the name of the rule in the record.
pub(super) fn rule(profile: &str) -> String {
    format!("profile {profile}: forward")
}

/// Returns the end of a connection whose daemon died.
pub fn interrupted(intent: Event) -> Event {
    let outcome = Outcome::new(Status::Interrupted).message("the daemon ended during the connection");
    Event { kind: Kind::ForwardReceipt, decision: None, ..intent }.outcome(outcome)
}
