//! Telling others: one POST an alert and webhook, signed after the Standard Webhooks specification
//! (standardwebhooks.com), tried again for a bounded time.
//!
//! Each webhook has a task of its own, which waits for it and for nothing else: one that never answers holds up itself. What
//! waits is in the store with its alert, so that a restart goes on with it; a receiver that had it already can tell by
//! `webhook-id`.

mod deliver;
mod send;
mod sign;
mod target;

pub(super) use deliver::deliver;
pub(super) use send::Sender;
pub(crate) use sign::Secret;
pub(crate) use target::Target;

use std::time::Duration;

use gateway::Severity;

/// A webhook, ready to be used.
#[derive(Debug)]
pub(crate) struct Webhook {
    /// Names it in alerts and logs, which never show where it is.
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) secret: Secret,
    pub(crate) min_severity: Severity,
    /// For one attempt, all of it.
    pub(crate) timeout: Duration,
    /// Attempts before it is given up.
    pub(crate) attempts: u32,
    /// Between the first and the second; doubled each time.
    pub(crate) first_retry: Duration,
}
