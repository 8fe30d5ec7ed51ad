//! Every family of metrics, with its name, unit and help.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::labels::{
    Build, Call, Cold, Direction, Kind, NodeResource, ProfileCall, Result, Rule, StageTimes, Start,
    StartPart, State, TenantBound,
};
use crate::latency::latency;
use crate::sample::{NodeSample, Ready, Sample};

/// Most profiles that are named. The others are counted together.
const MOST_PROFILES: usize = 64;
/// Name of the profiles beyond.
const OTHER: &str = "other";

type Seconds = Gauge<f64, AtomicU64>;
/// Most bounds of tenants that are shown: six of each tenant that a policy may have.
const MOST_BOUNDS: usize = 6 * 64;

/// Metrics that other parts of the daemon count by themselves.
#[derive(Debug)]
pub struct Own {
    pub stages: StageTimes,
    /// Time in which batches of records became durable.
    pub audit_writes: Histogram,
}

/// All metrics of a daemon.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pub(crate) calls: Family<Call, Counter>,
    pub(crate) profile_calls: Family<ProfileCall, Counter>,
    pub(crate) call_time: Histogram,
    pub(crate) approvals: Family<State, Counter>,
    pub(crate) alerts: Family<Rule, Counter>,
    pub(crate) escalations: Counter,
    pub(crate) refused_runs: Counter,
    pub(crate) workers: Family<State, Counter>,
    pub(crate) connections: Family<Result, Counter>,
    pub(crate) pushes: Counter,
    pub(crate) sessions: Counter,
    pub(crate) records: Counter,
    ready: Family<Start, Histogram, fn() -> Histogram>,
    start_parts: Family<StartPart, Histogram, fn() -> Histogram>,
    cold: Family<Cold, Counter>,
    gauges: Gauges,
    /// Held by a scrape from its first value until its text is written. Two at once would mix their values.
    scraping: Mutex<()>,
    profiles: Mutex<BTreeSet<String>>,
}

/// The values that a scrape reads.
#[derive(Debug, Default)]
struct Gauges {
    runs: Family<State, Gauge>,
    pool_waiting: Family<Kind, Gauge>,
    pool_wanted: Family<Kind, Gauge>,
    pool_claims: Family<Result, Counter>,
    pool_refills: Counter,
    pool_age: Seconds,
    approvals_waiting: Gauge,
    approval_age: Seconds,
    alerts_open: Gauge,
    audit_available: Gauge,
    audit_head: Gauge,
    audit_lag: Gauge,
    index_lag: Gauge,
    unsigned: Gauge,
    disk_free: Gauge,
    disk_size: Gauge,
    memory: Gauge,
    open_files: Gauge,
    processes: Gauge,
    egress_open: Gauge,
    egress_bytes: Family<Direction, Counter>,
    tenants: Family<TenantBound, Seconds>,
    node_state: Family<State, Gauge>,
    node_capacity: Family<NodeResource, Gauge>,
    node_used: Family<NodeResource, Gauge>,
    engine: Family<Result, Counter>,
    spans: Family<Result, Counter>,
}

impl Metrics {
    /// Registers every family. `version` is the daemon's.
    pub fn new(version: &str, own: Own) -> Self {
        let mut registry = Registry::with_prefix("cofferdam");
        let metrics = Self {
            calls: Family::default(),
            profile_calls: Family::default(),
            call_time: latency(),
            approvals: Family::default(),
            alerts: Family::default(),
            escalations: Counter::default(),
            refused_runs: Counter::default(),
            workers: Family::default(),
            connections: Family::default(),
            pushes: Counter::default(),
            sessions: Counter::default(),
            records: Counter::default(),
            ready: Family::new_with_constructor(latency as fn() -> Histogram),
            start_parts: Family::new_with_constructor(latency as fn() -> Histogram),
            cold: Family::default(),
            gauges: Gauges::default(),
            scraping: Mutex::default(),
            profiles: Mutex::default(),
            registry: Registry::default(),
        };
        registry.register("build", "Version of the daemon", Info::new(Build { version: version.to_owned() }));
        metrics.register_counters(&mut registry);
        metrics.gauges.register(&mut registry);
        let Own { stages, audit_writes } = own;
        let seconds = Unit::Seconds;
        registry.register_with_unit(
            "stage",
            "Time of each part of a call's way through the daemon",
            seconds.clone(),
            stages.family,
        );
        registry.register_with_unit(
            "audit_write",
            "Time in which records became durable, of a batch",
            seconds,
            audit_writes,
        );
        Self { registry, ..metrics }
    }

    fn register_counters(&self, registry: &mut Registry) {
        registry.register("calls", "Calls that have ended", self.calls.clone());
        registry.register(
            "profile_calls",
            "Calls that have ended, by the profile of their run",
            self.profile_calls.clone(),
        );
        registry.register_with_unit(
            "call",
            "Time of a call from its arrival to its receipt, with the wait for a reviewer",
            Unit::Seconds,
            self.call_time.clone(),
        );
        registry.register_with_unit(
            "run_ready",
            "Time from the request of a run until it was ready",
            Unit::Seconds,
            self.ready.clone(),
        );
        registry.register_with_unit(
            "run_start_part",
            "Parts of the time until a run with companions was ready: itself, and the wait for its companions after that",
            Unit::Seconds,
            self.start_parts.clone(),
        );
        registry.register("cold_starts", "Runs that got a new container, by the reason", self.cold.clone());
        registry.register(
            "approvals",
            "Approvals that were asked for, and that ended, by their state",
            self.approvals.clone(),
        );
        registry.register("alerts", "Alerts that anomaly rules have raised", self.alerts.clone());
        registry.register(
            "access_refusals",
            "Requests without a valid token, certificate or permission",
            self.escalations.clone(),
        );
        registry.register(
            "refused_runs",
            "Runs that bounds of tenants, or the node, have refused",
            self.refused_runs.clone(),
        );
        registry.register(
            "worker_events",
            "Losses of workers, and companions that ended or did not follow a pause of their run",
            self.workers.clone(),
        );
        registry.register("egress_connections", "Connections of runs", self.connections.clone());
        registry.register("git_pushes", "Pushes of git that went out", self.pushes.clone());
        registry.register("terminals", "Terminals that operators have opened", self.sessions.clone());
        registry.register("audit_records", "Records that have become durable", self.records.clone());
    }

    /// Counts a run that is ready.
    pub fn ready(&self, run: Ready<'_>) {
        let start_kind = if run.cold_because.is_some() { "cold" } else { "warm" };
        let start = Start { start_kind, profile: self.profile(run.profile) };
        self.ready.get_or_create(&start).observe(run.took.as_secs_f64());
        if let Some(waited) = run.waited_for_companions {
            for (part, took) in [("itself", run.took.saturating_sub(waited)), ("companions", waited)] {
                self.start_parts.get_or_create(&StartPart { start_kind, part }).observe(took.as_secs_f64());
            }
        }
        if let Some(cold_because) = run.cold_because {
            self.cold.get_or_create(&Cold { cold_because }).inc();
        }
    }

    /// Returns the name of a profile as a label, or `other` if too many are known.
    pub(crate) fn profile(&self, name: &str) -> String {
        let mut known = self.profiles.lock();
        if !known.contains(name) {
            if known.len() >= MOST_PROFILES {
                return OTHER.to_owned();
            }
            known.insert(name.to_owned());
        }
        name.to_owned()
    }

    /// Returns all metrics as OpenMetrics text, with the gauges of this moment.
    pub fn encode(&self, sample: &Sample) -> String {
        let _scraping = self.scraping.lock();
        self.gauges.set(self, sample);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

impl Gauges {
    fn register(&self, registry: &mut Registry) {
        let bytes = Unit::Bytes;
        registry.register("runs", "Runs that have not ended", self.runs.clone());
        registry.register("pool_waiting", "Containers that wait for runs", self.pool_waiting.clone());
        registry.register("pool_wanted", "Containers that should wait for runs", self.pool_wanted.clone());
        registry.register(
            "pool_claims",
            "Runs of a kind that the pool keeps, by its containers that waited: one or none",
            self.pool_claims.clone(),
        );
        registry.register(
            "pool_refills",
            "Containers that were added to the pool",
            self.pool_refills.clone(),
        );
        registry.register_with_unit(
            "pool_age",
            "Time that the oldest container of the pool waits",
            Unit::Seconds,
            self.pool_age.clone(),
        );
        registry.register(
            "approvals_waiting",
            "Approvals that wait for a reviewer",
            self.approvals_waiting.clone(),
        );
        registry.register_with_unit(
            "approval_age",
            "Age of the oldest approval that waits for a reviewer",
            Unit::Seconds,
            self.approval_age.clone(),
        );
        registry.register("alerts_open", "Alerts that nobody has acknowledged", self.alerts_open.clone());
        registry.register("audit_available", "1 if records can be written", self.audit_available.clone());
        registry.register("audit_head", "Number of the last durable record", self.audit_head.clone());
        registry.register("audit_lag_records", "Events that wait to become durable", self.audit_lag.clone());
        registry.register("audit_index_lag_records", "Records that the index lacks", self.index_lag.clone());
        registry.register(
            "audit_unsigned_records",
            "Records after the last signed checkpoint",
            self.unsigned.clone(),
        );
        registry.register_with_unit(
            "disk_free",
            "Free space of the state directory's file system",
            bytes.clone(),
            self.disk_free.clone(),
        );
        registry.register_with_unit(
            "disk_size",
            "Size of the state directory's file system",
            bytes.clone(),
            self.disk_size.clone(),
        );
        registry.register_with_unit("resident_memory", "Memory of the daemon", bytes, self.memory.clone());
        registry.register("open_files", "Open file descriptors of the daemon", self.open_files.clone());
        registry.register(
            "processes",
            "Background processes and sessions of runs, of those that have not ended",
            self.processes.clone(),
        );
        registry.register("engine_calls", "Calls to the container engine", self.engine.clone());
        registry.register("trace_spans", "Spans of traces, by their fate", self.spans.clone());
        registry.register_with_unit(
            "tenant_used",
            "Part of a tenant's bound that is used",
            Unit::Other("ratio".to_owned()),
            self.tenants.clone(),
        );
        registry.register("node_state", "1 for the state of the node", self.node_state.clone());
        registry.register(
            "node_capacity",
            "Amounts that all runs of the node may take together",
            self.node_capacity.clone(),
        );
        registry.register(
            "node_used",
            "Amounts that the runs of the node take, by their limits",
            self.node_used.clone(),
        );
        registry.register("egress_open", "Connections of runs that are open", self.egress_open.clone());
        registry.register_with_unit(
            "egress",
            "Bytes of connections of runs, also of those that are open",
            Unit::Bytes,
            self.egress_bytes.clone(),
        );
    }

    fn set(&self, of: &Metrics, sample: &Sample) {
        for (state, number) in &sample.runs.by_state {
            self.runs.get_or_create(&State { state }).set(whole(*number));
        }
        // Entries come and go with the configuration and the policy.
        self.pool_waiting.clear();
        self.pool_wanted.clear();
        for (profile, pool) in &sample.pool {
            let kind = Kind { profile: of.profile(profile) };
            self.pool_waiting.get_or_create(&kind).inc_by(whole(pool.waiting));
            self.pool_wanted.get_or_create(&kind).inc_by(whole(pool.wanted));
        }
        self.approvals_waiting.set(whole(sample.approvals_waiting));
        self.approval_age.set(sample.oldest_approval.unwrap_or_default().as_secs_f64());
        self.alerts_open.set(whole(sample.alerts_open));
        self.audit_available.set(i64::from(sample.audit.is_available));
        self.audit_head.set(whole(sample.audit.head));
        self.audit_lag.set(whole(sample.audit.lag));
        self.index_lag.set(whole(sample.audit.index_lag));
        self.unsigned.set(whole(sample.audit.unsigned));
        if let Some(disk) = sample.disk {
            self.disk_free.set(whole(disk.free));
            self.disk_size.set(whole(disk.total));
        }
        self.memory.set(whole(sample.resident_memory));
        self.open_files.set(whole(sample.open_files));
        self.processes.set(whole(sample.processes));
        self.egress_open.set(whole(sample.egress_open));
        self.pool_age.set(sample.pool_oldest.unwrap_or_default().as_secs_f64());
        self.pool_refills.inner().store(sample.pool_refills, Ordering::Relaxed);
        // Other parts count; this shows their numbers.
        let counted = |family: &Family<Result, Counter>, result, count| {
            family.get_or_create(&Result { result }).inner().store(count, Ordering::Relaxed);
        };
        // Tenants come and go with the policy.
        self.tenants.clear();
        for one in sample.tenants.iter().take(MOST_BOUNDS) {
            let labels = TenantBound { tenant: one.tenant.clone(), bound: one.bound };
            self.tenants.get_or_create(&labels).set(one.used);
        }
        if let Some(node) = &sample.node {
            for state in NodeSample::STATES {
                self.node_state.get_or_create(&State { state }).set(i64::from(state == node.state));
            }
            for (resource, capacity, used) in node.amounts {
                let resource = NodeResource { resource };
                if capacity < u64::MAX {
                    self.node_capacity.get_or_create(&resource).set(whole(capacity));
                }
                self.node_used.get_or_create(&resource).set(whole(used));
            }
        }
        for (direction, count) in ["out", "in"].into_iter().zip(sample.egress_bytes) {
            self.egress_bytes.get_or_create(&Direction { direction }).inner().store(count, Ordering::Relaxed);
        }
        for (result, count) in ["answered", "failed", "timed_out"].into_iter().zip(sample.engine) {
            counted(&self.engine, result, count);
        }
        for (result, count) in ["one", "none"].into_iter().zip(sample.pool_claims) {
            counted(&self.pool_claims, result, count);
        }
        for (result, count) in ["sent", "lost"].into_iter().zip(sample.spans) {
            counted(&self.spans, result, count);
        }
    }
}

fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
