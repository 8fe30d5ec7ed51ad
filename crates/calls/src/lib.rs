#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // the daemon alone calls it

mod approvals;
mod bare;
mod call;
pub mod grants;
pub mod limits;
mod replay;
mod table;
mod transcript;
mod upstream;

use std::sync::Arc;

use audit_service::{AuditLog, Escalations};
use disk_quotas::Quotas;
use gateway::Gateway;
use processes::Processes;
use runs::{OnStop, Runs};
use store::Store;
use store::spool::Spool;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use approvals::{Approvals, FormerApprovals};
pub use bare::bare;
pub use call::{Events, call, call_until, download, limits, operation, resume, stream};
pub use replay::{Replays, verdict};
pub use table::{CallTable, Found};
pub use transcript::step;
pub use upstream::Upstreams;

use limits::Limits;

/// Every part of the daemon that a call needs.
pub struct Calls {
    pub audit: Arc<AuditLog>,
    pub gateway: Arc<Gateway>,
    /// Rate limits and slots.
    pub limits: Arc<Limits>,
    pub approvals: Arc<Approvals>,
    pub escalations: Arc<Escalations>,
    pub runs: Arc<Runs>,
    /// Calls under way and lately finished.
    pub table: CallTable,
    /// The output of commands.
    pub spool: Arc<Spool>,
    /// Background processes, which outlive their calls.
    pub processes: Processes,
    /// Limits on the disk space of all of that.
    pub quotas: Arc<Quotas>,
    pub store: Store,
    /// MCP servers that the policy names.
    pub upstreams: Upstreams,
    /// Calls that are being made: they outlive their clients, and a stop waits for them.
    pub tasks: TaskTracker,
    /// Cancelled when the daemon stops.
    pub stop: CancellationToken,
    /// The fate of runs at an orderly stop.
    pub on_stop: OnStop,
}
