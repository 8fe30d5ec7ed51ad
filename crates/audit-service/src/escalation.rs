//! Records attempts to do something that the caller may not do, so that anomaly detection and auditors see them.
//!
//! An attempt costs its maker nothing, but a record costs space on disk. So each principal, address and run has a limited number
//! of records a minute. Further attempts are only counted, and the next record has the count.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use admission::{Due, OccurrencesByClient};
use audit::{Event, Kind};
use identity::{Principal, RunId};
use serde_json::{Value, json};

use crate::log::AuditLog;

/// Most records of one principal, address and run within a minute.
const MOST: u32 = 30;
/// Attempts of all kinds are counted together.
const COUNTED: &str = "escalation_attempt";

/// The kind of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Calling a method that needs a role.
    Method,
    /// Calling a method that run tokens may not call, with a run's token.
    MethodWithToken,
    /// Using another run with a run's token.
    OtherRun,
    /// Connecting to a port of a run whose profile does not forward any.
    Forward,
    /// Acting for an agent other than the run's.
    OtherAgent,
    /// Connecting with an invalid token.
    BadToken,
    ExpiredToken,
    RevokedToken,
    /// Using a token from an address for which it is not valid, or where no token is accepted.
    TokenElsewhere,
    /// Calling a method that no API token opens, with an API token.
    MethodWithApiToken,
    /// Connecting with an invalid client certificate, or with none where one is needed.
    BadCertificate,
}

impl Attempt {
    fn as_str(self) -> &'static str {
        match self {
            Self::Method => "method",
            Self::MethodWithToken => "method_with_run_token",
            Self::OtherRun => "other_run",
            Self::Forward => "forward_port",
            Self::OtherAgent => "other_agent",
            Self::BadToken => "bad_token",
            Self::ExpiredToken => "expired_token",
            Self::RevokedToken => "revoked_token",
            Self::TokenElsewhere => "token_elsewhere",
            Self::MethodWithApiToken => "method_with_api_token",
            Self::BadCertificate => "bad_certificate",
        }
    }
}

/// Keeps the record of attempts.
pub struct Escalations {
    audit: Arc<AuditLog>,
    counted: OccurrencesByClient<Who>,
}

type Who = (String, Option<IpAddr>, Option<RunId>);

impl Escalations {
    pub fn new(audit: Arc<AuditLog>) -> Self {
        Self { audit, counted: OccurrencesByClient::new(MOST) }
    }

    /// Records an attempt, without waiting for the log. `target` is the object of the attempt, such as a method.
    pub fn report(&self, principal: &Principal, run: Option<RunId>, attempt: Attempt, target: &str) {
        // A run's token counts for its own run, whatever runs its holder names.
        let who = (principal.name.clone(), principal.address, principal.run.or(run));
        let Some(due) = self.counted.add(COUNTED, &who, Instant::now()) else { return };
        let target: String = target.chars().take(128).collect();
        let mut details = json!({ "attempt": attempt.as_str(), "target": target });
        if principal.run.is_some() {
            details["via"] = "run_token".into();
        }
        if let Some(address) = principal.address {
            details["address"] = address.to_string().into();
        }
        add_left_out(due, &mut details);
        let mut event = Event::new(Kind::EscalationAttempt).principal(&principal.name).details(details);
        event.run_id = run.or(principal.run).map(|run| run.to_string());
        let audit = self.audit.clone();
        tokio::spawn(async move {
            if audit.enqueue(event).await.is_err() {
                tracing::error!("an attempt to exceed permissions could not be recorded in the audit log");
            }
        });
    }
}

/// Adds the number of attempts that are not on record to the details of the next one that is.
fn add_left_out(due: Due, details: &mut Value) {
    // Those of several are not put down to the principal of this record.
    let name = if due.clients == 1 { "left_out" } else { "left_out_of_several" };
    if due.count > 1 {
        details[name] = (due.count - 1).into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_one_is_counted_and_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let (log, _, _) = AuditLog::open(directory.path(), crate::Settings::default()).unwrap();
        let (escalations, now) = (Escalations::new(Arc::new(log)), Instant::now());
        let is_recorded = |who: &str, address: Option<IpAddr>| {
            escalations.counted.add(COUNTED, &(who.to_owned(), address, None), now).is_some()
        };
        assert!((0..MOST).all(|_| is_recorded("a", None)));
        assert!(!is_recorded("a", None));
        assert!(is_recorded("b", None) && is_recorded("a", Some([192, 0, 2, 1].into())));
    }

    #[test]
    fn attempts_of_several_are_not_put_down_to_one() {
        let details = |count, clients| {
            let mut details = json!({});
            add_left_out(Due { count, clients }, &mut details);
            details
        };
        assert_eq!(details(1, 1), json!({}));
        assert_eq!(details(6, 1), json!({ "left_out": 5 }));
        assert_eq!(details(6, 2), json!({ "left_out_of_several": 5 }));
    }
}
