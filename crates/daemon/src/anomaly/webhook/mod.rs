//! Who is told of alerts: one POST an alert and webhook, tried again for a bounded time.
//!
//! Each webhook has a task of its own, which waits for it and for nothing else: one that never answers holds up itself. What
//! waits is in the store with its alert, so that a restart goes on with it; a receiver that had it already can tell by
//! `webhook-id`.

mod deliver;

pub(super) use deliver::deliver;

use gateway::Severity;

use crate::webhook::Endpoint;

/// A webhook, ready to be used.
#[derive(Debug)]
pub(crate) struct Webhook {
    /// Its name is that of its deliveries, too.
    pub(crate) endpoint: Endpoint,
    pub(crate) min_severity: Severity,
}
