//! The parts of a daemon that its services and tasks share. Each is given those that it uses.

use std::sync::Arc;

use audit_service::{AuditLog, Escalations};
use calls::limits::Limits;
use calls::{Approvals, CallTable, Calls, Control, Life, Records, Upstreams, Workers};
use disk_quotas::Quotas;
use gateway::Gateway;
use processes::Processes;
use runs::{OnStop, Runs};
use store::Store;
use store::spool::Spool;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(super) struct Parts {
    pub(super) audit: Arc<AuditLog>,
    pub(super) escalations: Arc<Escalations>,
    pub(super) store: Store,
    pub(super) spool: Arc<Spool>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) limits: Arc<Limits>,
    pub(super) approvals: Arc<Approvals>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) runs: Arc<Runs>,
    pub(super) processes: Processes,
    pub(super) upstreams: Arc<Upstreams>,
    /// Calls under way and lately finished.
    pub(super) table: Arc<CallTable>,
    /// Work that a stop waits for.
    pub(super) tasks: TaskTracker,
    /// Cancelled when the daemon stops.
    pub(super) stop: CancellationToken,
    /// The fate of runs at an orderly stop.
    pub(super) on_stop: OnStop,
}

impl Parts {
    /// Returns the maker of calls.
    pub(super) fn calls(&self) -> Calls {
        let control = Control {
            gateway: self.gateway.clone(),
            limits: self.limits.clone(),
            approvals: self.approvals.clone(),
            quotas: self.quotas.clone(),
        };
        let workers = Workers {
            runs: self.runs.clone(),
            processes: self.processes.clone(),
            upstreams: self.upstreams.clone(),
        };
        let records = Records {
            audit: self.audit.clone(),
            escalations: self.escalations.clone(),
            table: self.table.clone(),
            spool: self.spool.clone(),
        };
        let life = Life { tasks: self.tasks.clone(), stop: self.stop.clone(), on_stop: self.on_stop };
        Calls::new(control, workers, records, life)
    }
}
