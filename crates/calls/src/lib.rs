#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // the daemon alone calls it

mod approvals;
mod bare;
mod call;
mod checkpoints;
pub mod grants;
pub mod limits;
mod quote;
mod replay;
mod table;
mod transcript;
mod upstream;

use std::sync::Arc;

use audit_service::{AuditLog, Escalations};
use disk_quotas::Quotas;
use gateway::Gateway;
use metrics::StageTimes;
use processes::{Processes, StopRule};
use runs::Runs;
use store::spool::Spool;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use traces::Traces;

pub use approvals::{ApprovalSettings, Approvals, WaitingApprovals};
pub use bare::bare;
pub use call::{Events, Metadata, call, download, limits, operation, resume, stream};
pub use checkpoints::{AgentCheckpoints, Restored};
pub use replay::{Replays, verdict};
pub use table::{CallTable, Found};
pub use transcript::Transcripts;
pub use upstream::Upstreams;

use checkpoints::Moments;
use limits::Limits;

/// Judges of a call: the policy, the limits, the disk quotas and the reviewers.
#[derive(Clone)]
pub struct Control {
    pub gateway: Arc<Gateway>,
    /// Rate limits and slots.
    pub limits: Arc<Limits>,
    pub approvals: Arc<Approvals>,
    pub quotas: Arc<Quotas>,
}

/// Executors of a call.
#[derive(Clone)]
pub struct Workers {
    pub runs: Arc<Runs>,
    /// Background processes, which outlive their calls.
    pub processes: Processes,
    /// MCP servers that the policy names.
    pub upstreams: Arc<Upstreams>,
    /// Checkpoints that agents and the daemon make.
    pub checkpoints: Arc<dyn AgentCheckpoints>,
}

/// Records, answers and output of calls.
#[derive(Clone)]
pub struct Records {
    pub audit: Arc<AuditLog>,
    pub escalations: Arc<Escalations>,
    /// Calls under way and lately finished.
    pub table: Arc<CallTable>,
    /// The output of commands.
    pub spool: Arc<Spool>,
    /// Histograms of the parts of a call's way.
    pub stages: StageTimes,
    /// Traces of calls, and their export.
    pub traces: Traces,
}

/// Life of the daemon in which calls are made.
#[derive(Clone)]
pub struct Life {
    /// Calls that are being made: they outlive their clients, and a stop waits for them.
    pub tasks: TaskTracker,
    /// Cancelled when the daemon stops.
    pub stop: CancellationToken,
    /// Cancelled when no further call begins: at a stop, and in a hand-over before the calls under way have finished.
    pub closing: CancellationToken,
    /// Requests for calls that are not in the table yet. None of them is among the calls under way.
    pub entering: TaskTracker,
    /// The fate of runs at an orderly stop.
    pub on_stop: StopRule,
}

/// Makes calls.
pub struct Calls {
    control: Control,
    workers: Workers,
    records: Records,
    life: Life,
    moments: Moments,
}

impl Calls {
    pub fn new(control: Control, workers: Workers, records: Records, life: Life) -> Self {
        Self { control, workers, records, life, moments: Moments::default() }
    }
}
