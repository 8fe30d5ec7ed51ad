//! Records attempts to do something that the caller may not do, so that anomaly detection and auditors see them.
//!
//! An attempt costs its maker nothing, but a record costs space on disk. So each principal, address and run has a limited number
//! of records a minute. Further attempts are only counted, and the next record has the count.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use audit::{Event, Kind};
use identity::{Principal, RunId};
use parking_lot::Mutex;
use serde_json::json;

use crate::log::AuditLog;

/// Most records of one principal, address and run within [`WINDOW`].
const MOST: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);
/// Most combinations that are counted separately; further ones share one counter.
const APART: usize = 1_024;

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

#[derive(Default)]
struct Counted {
    since: Option<Instant>,
    records: u32,
    left_out: u64,
}

/// An attempt that is recorded.
#[derive(Debug, PartialEq, Eq)]
struct Admitted {
    /// Number of attempts that its counter has left out since its last record.
    left_out: u64,
    /// True if the counter is of this principal, address and run, and not of all that are beyond [`APART`].
    is_apart: bool,
}

/// Keeps the record of attempts.
pub struct Escalations {
    audit: Arc<AuditLog>,
    counted: Mutex<HashMap<Who, Counted>>,
}

type Who = (String, Option<IpAddr>, Option<RunId>);

impl Escalations {
    pub fn new(audit: Arc<AuditLog>) -> Self {
        Self { audit, counted: Mutex::default() }
    }

    /// Records an attempt, without waiting for the log. `target` is the object of the attempt, such as a method.
    pub fn report(&self, principal: &Principal, run: Option<RunId>, attempt: Attempt, target: &str) {
        let who = (principal.name.clone(), principal.address, run.or(principal.run));
        let Some(admitted) = self.admit(who, Instant::now()) else { return };
        let target: String = target.chars().take(128).collect();
        let mut details = json!({ "attempt": attempt.as_str(), "target": target });
        if principal.run.is_some() {
            details["via"] = "run_token".into();
        }
        if let Some(address) = principal.address {
            details["address"] = address.to_string().into();
        }
        match admitted {
            Admitted { left_out: 0, .. } => {}
            Admitted { left_out, is_apart: true } => details["left_out"] = left_out.into(),
            // The counter is not of this principal alone.
            Admitted { left_out, is_apart: false } => details["left_out_of_several"] = left_out.into(),
        }
        let mut event = Event::new(Kind::EscalationAttempt).principal(&principal.name).details(details);
        event.run_id = run.or(principal.run).map(|run| run.to_string());
        let audit = self.audit.clone();
        tokio::spawn(async move {
            if audit.enqueue(event).await.is_err() {
                tracing::error!("an attempt to exceed permissions could not be recorded in the audit log");
            }
        });
    }

    /// Counts an attempt. `None`: it is left out.
    fn admit(&self, who: Who, now: Instant) -> Option<Admitted> {
        let mut counted = self.counted.lock();
        if counted.len() >= APART && !counted.contains_key(&who) {
            let mut forgotten = 0;
            counted.retain(|_, one| {
                let is_recent = one.since.is_some_and(|since| now.duration_since(since) < WINDOW);
                forgotten += if is_recent { 0 } else { one.left_out };
                is_recent
            });
            if forgotten > 0 {
                counted.entry(Who::default()).or_default().left_out += forgotten;
            }
        }
        let is_apart = counted.len() < APART || counted.contains_key(&who);
        let who = if is_apart { who } else { Who::default() };
        let one = counted.entry(who).or_default();
        if one.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            *one = Counted { since: Some(now), records: 0, left_out: one.left_out };
        }
        if one.records >= MOST {
            one.left_out += 1;
            return None;
        }
        one.records += 1;
        Some(Admitted { left_out: std::mem::take(&mut one.left_out), is_apart })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::{APART, Admitted, Escalations, MOST, WINDOW};

    #[test]
    fn a_flood_is_counted_and_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let (log, _, _) = crate::AuditLog::open(directory.path(), crate::Settings::default()).unwrap();
        let escalations = Escalations::new(Arc::new(log));
        let now = Instant::now();
        let admit = |who: &str, at| escalations.admit((who.to_owned(), None, None), at);
        let apart = |left_out| Some(Admitted { left_out, is_apart: true });
        for _ in 0..MOST {
            assert_eq!(admit("a", now), apart(0));
        }
        for _ in 0..5 {
            assert_eq!(admit("a", now), None);
        }
        assert_eq!(admit("b", now), apart(0), "another one has a separate slot");
        assert_eq!(admit("a", now + WINDOW), apart(5));
        for number in 0..2 * APART {
            let _ = admit(&format!("c{number}"), now + WINDOW);
        }
        assert!(escalations.counted.lock().len() <= APART + 1);
    }

    #[test]
    fn attempts_of_several_are_not_put_down_to_one() {
        let directory = tempfile::tempdir().unwrap();
        let (log, _, _) = crate::AuditLog::open(directory.path(), crate::Settings::default()).unwrap();
        let escalations = Escalations::new(Arc::new(log));
        let now = Instant::now();
        let admit = |who: &str, at| escalations.admit((who.to_owned(), None, None), at);
        let shared = |left_out| Some(Admitted { left_out, is_apart: false });
        let keep_all_apart = |at| {
            for number in 0..APART {
                let _ = admit(&format!("c{number}"), at);
            }
        };
        keep_all_apart(now);
        for number in 0..MOST {
            assert_eq!(admit(&format!("d{number}"), now), shared(0));
        }
        assert_eq!((admit("e", now), admit("f", now)), (None, None));
        keep_all_apart(now + WINDOW);
        assert_eq!(admit("g", now + WINDOW), shared(2));
    }
}
