//! The values that are read at a scrape.

use std::collections::BTreeMap;
use std::time::Duration;

/// State of the daemon at one moment. Sizes are bytes.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    pub runs: RunsSample,
    /// Containers that wait, by the profile of their entry.
    pub pool: BTreeMap<String, PoolSample>,
    /// Runs that found a container of their kind, and that found none.
    pub pool_claims: [u64; 2],
    /// Containers that were added to the pool.
    pub pool_refills: u64,
    /// Time that the oldest container waits.
    pub pool_oldest: Option<Duration>,
    /// Calls and connections that wait for a reviewer.
    pub approvals_waiting: u64,
    /// Age of the oldest of them.
    pub oldest_approval: Option<Duration>,
    pub alerts_open: u64,
    pub audit: AuditSample,
    /// Calls that the container engine answered, that failed, and that had no answer in time.
    pub engine: [u64; 3],
    pub disk: Option<DiskSample>,
    /// Memory of the daemon that is resident.
    pub resident_memory: u64,
    pub open_files: u64,
    /// Background processes and sessions of all runs.
    pub processes: u64,
    /// Spans that were exported, and that were lost.
    pub spans: [u64; 2],
    /// Connections of runs that are open or being decided about.
    pub egress_open: u64,
    /// Bytes that connections of runs have moved since the start: out, and in.
    pub egress_bytes: [u64; 2],
    pub tenants: Vec<TenantSample>,
    pub node: Option<NodeSample>,
}

/// State of the node.
#[derive(Debug, Clone, Copy)]
pub struct NodeSample {
    /// One of [`NodeSample::STATES`].
    pub state: &'static str,
    /// Each resource with the amount that all runs may take, and the amount that they take. The largest number: it is not known.
    pub amounts: [(&'static str, u64, u64); 4],
}

impl NodeSample {
    pub const STATES: [&'static str; 3] = ["serving", "draining", "drained"];
}

/// A bound of a tenant of the policy.
#[derive(Debug, Clone)]
pub struct TenantSample {
    pub tenant: String,
    /// Key of the bound.
    pub bound: &'static str,
    /// Part that is used, where 1 is all.
    pub used: f64,
}

/// Runs that have not ended, by state.
#[derive(Debug, Clone, Default)]
pub struct RunsSample {
    /// Name of the state, and the number of runs.
    pub by_state: Vec<(&'static str, u64)>,
}

/// Containers of one profile that wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolSample {
    pub waiting: u64,
    pub wanted: u64,
}

/// State of the audit log.
#[derive(Debug, Clone, Copy, Default)]
pub struct AuditSample {
    pub is_available: bool,
    /// Sequence number of the last durable record.
    pub head: u64,
    /// Events that wait to become durable.
    pub lag: u64,
    /// Records that the index lacks.
    pub index_lag: u64,
    /// Records after the last signed checkpoint.
    pub unsigned: u64,
}

/// Space of the state directory's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct DiskSample {
    pub free: u64,
    pub total: u64,
}

/// The start of a run.
#[derive(Debug, Clone, Copy)]
pub struct Ready<'a> {
    pub profile: &'a str,
    /// Time from the request to READY.
    pub took: Duration,
    /// Reason that the run got a new container; `None` for one that waited.
    pub cold_because: Option<&'static str>,
    /// Part of that time in which only its companions were not ready; `None` without companions.
    pub waited_for_companions: Option<Duration>,
}
