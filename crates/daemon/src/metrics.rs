//! Fills the metrics: follows the audit log, reads the state of the daemon at a scrape, and serves both.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::metrics::{
    Access, AuditSample, DiskSample, Metrics, Own, Pages, PoolSample, Ready, RunsSample, Sample,
    TenantSample, Text, TokenInForce,
};
use ::traces::Traces;
use anomaly::Alerts;
use anyhow::Context as _;
use audit::{Event, Kind};
use audit_service::{AuditLog, Index, IndexState};
use calls::{Control, Records, Workers};
use disk_quotas::Quotas;
use gateway::{ApprovalFilter, ApprovalState, Gateway};
use identity::RunId;
use listener::Certificates;
use node::Node;
use processes::Processes;
use runs::Runs;
use runs::record::{Record, State};
use take_over::Listeners;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::MetricsListen;
use readiness::{Condition, Readiness};

/// Time that records may wait for more.
const LINGER: Duration = Duration::from_millis(200);
/// Wait before another attempt to read the log.
const AGAIN: Duration = Duration::from_secs(5);
/// States of runs that have not ended.
const LIVING: [State; 4] = [State::Creating, State::Ready, State::Paused, State::Stopping];
/// Most alerts that are counted as open.
const MOST_ALERTS: usize = 10_000;

/// The parts of a daemon that a scrape reads.
struct Source {
    metrics: Metrics,
    runs: Arc<Runs>,
    gateway: Arc<Gateway>,
    audit: Arc<AuditLog>,
    index: Arc<Index>,
    alerts: Arc<Alerts>,
    quotas: Arc<Quotas>,
    processes: Processes,
    traces: Traces,
    readiness: Arc<Readiness>,
    node: Arc<Node>,
}

/// Starts to count and to serve, if the configuration has a listener. Both end when the daemon stops. Returns the token of clients.
pub(crate) async fn start(
    listen: Option<&MetricsListen>,
    certificates: Option<Arc<Certificates>>,
    (control, workers, records, node): (&Control, &Workers, &Records, &Arc<Node>),
    (index, alerts, readiness): (Arc<Index>, Arc<Alerts>, Arc<Readiness>),
    (tasks, stop): (&TaskTracker, &CancellationToken),
    listeners: &Listeners,
) -> anyhow::Result<Option<TokenInForce>> {
    let Some(listen) = listen else { return Ok(None) };
    let (audit, runs) = (records.audit.clone(), workers.runs.clone());
    let own = Own { stages: records.stages.clone(), audit_writes: audit.writes() };
    let source = Arc::new(Source {
        metrics: Metrics::new(env!("CARGO_PKG_VERSION"), own),
        runs,
        gateway: control.gateway.clone(),
        audit,
        index,
        alerts,
        quotas: control.quotas.clone(),
        processes: workers.processes.clone(),
        traces: records.traces.clone(),
        readiness,
        node: node.clone(),
    });
    let mut access = listen.token()?.map_or_else(Access::open, |token| Access::open().token(&token));
    if let Some(certificates) = certificates.filter(|_| listen.is_remote()) {
        access = access.tls(move |stream| {
            let certificates = certificates.clone();
            async move {
                let (stream, is_certified) = certificates.accept_http(stream).await?;
                Ok((Box::new(stream) as Box<dyn ::metrics::Stream>, is_certified))
            }
        });
    }
    let token = access.token_in_force();
    let address = listen.address;
    let listener = listeners.tcp("metrics", address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address} for metrics"))?;
    tracing::info!(address = %listener.local_addr()?, "metrics are at /metrics");
    tasks.spawn(source.clone().follow_log(stop.clone()));
    tasks.spawn(::metrics::serve(listener, access, Shown(source), stop.clone()));
    Ok(Some(token))
}

/// The pages of a daemon.
struct Shown(Arc<Source>);

impl Pages for Shown {
    fn metrics(&self) -> Text {
        let source = self.0.clone();
        let made = tokio::task::spawn_blocking(move || source.metrics.encode(&source.sample()));
        Box::pin(async move { made.await.unwrap_or_default() })
    }

    fn readiness(&self, profiles: &[String]) -> (bool, String) {
        let conditions = self.0.readiness.conditions(&self.0.gateway.policy(), profiles);
        let line =
            |condition: &Condition| format!("{}: {}\n", condition.name, condition.problem.unwrap_or("ok"));
        let is_ready = conditions.iter().all(|condition| condition.problem.is_none());
        (is_ready, conditions.iter().map(line).collect())
    }
}

impl Source {
    /// Counts the records that become durable from now on.
    async fn follow_log(self: Arc<Self>, stop: CancellationToken) {
        let mut after = self.audit.head().map_or(0, |head| head.sequence);
        let mut beginning = BTreeSet::new();
        while !stop.is_cancelled() {
            let mut follow = self.audit.read_after(after, true).lingering(LINGER);
            while let Some(Ok(Some(lines))) = stop.run_until_cancelled(follow.next()).await {
                for line in lines {
                    after = line.record.sequence;
                    self.metrics.record(&line.record.event, |run| self.profile_of(run));
                    self.start(&line.record.event, &mut beginning);
                }
            }
            // The log can be unreadable for a while. What was missed is counted later.
            let _ = stop.run_until_cancelled(tokio::time::sleep(AGAIN)).await;
        }
    }

    /// Counts the start of a run when it is ready for the first time. `beginning` has the runs that are not.
    fn start(&self, event: &Event, beginning: &mut BTreeSet<String>) {
        let Some(run) = &event.run_id else { return };
        match event.kind {
            Kind::RunCreated => {
                beginning.insert(run.clone());
            }
            // The next state, which may be its end.
            Kind::RunState if beginning.remove(run) => {
                let record = RunId::parse(run).ok().and_then(|run| self.runs.get(run).ok());
                if let Some(record) = record {
                    self.ready(&record);
                }
            }
            _ => {}
        }
    }

    fn profile_of(&self, run: &str) -> Option<String> {
        let id = RunId::parse(run).ok()?;
        // The whole record of a run is large, and this is done for each call.
        let living = self.runs.living_run(id).map(|run| run.spec().profile.clone());
        living.or_else(|_| self.runs.get(id).map(|record| record.spec.profile)).ok()
    }

    fn ready(&self, record: &Record) {
        let Some(ready_at) = record.ready_at else { return };
        let cold_because = record.cold_because().map(|because| because.to_wire().as_str_name());
        let is_warm = record.start_kind() == wire::v1::run::StartKind::Warm;
        self.metrics.ready(Ready {
            profile: &record.spec.profile,
            took: record.created_at.until(ready_at),
            waited_for_companions: record.waited_for_companions(),
            cold_because: (!is_warm).then(|| cold_because.unwrap_or("COLD_BECAUSE_UNSPECIFIED")),
        });
    }

    fn sample(&self) -> Sample {
        let living = self.runs.all_living();
        let states: Vec<State> = living.iter().map(|(_, run)| run.record().state).collect();
        let count = |state| states.iter().filter(|of_run| **of_run == state).count() as u64;
        let by_state = LIVING.map(|state| (state.as_str(), count(state))).into();
        let pending = ApprovalFilter { state: Some(ApprovalState::Pending), run_id: None };
        let pending = self.gateway.list_approvals(&pending);
        let oldest = pending.iter().map(|approval| approval.created_at).min();
        let egress = living.iter().filter_map(|(_, run)| run.egress());
        let open = |process: &wire::v1::Process| process.ended_at.is_none();
        let processes =
            living.iter().map(|(id, _)| self.processes.list(*id, "").iter().filter(|one| open(one)).count());
        let pool = self.runs.launcher.pool.levels();
        Sample {
            runs: RunsSample { by_state },
            pool: Self::pool(pool.fills.into_iter().map(|fill| (fill.name, fill.ready, fill.target))),
            pool_claims: [pool.counts.claimed, pool.counts.missed],
            pool_refills: pool.counts.refilled,
            pool_oldest: pool.oldest,
            approvals_waiting: pending.len() as u64,
            oldest_approval: oldest.map(|since| age(since.0)),
            alerts_open: self.alerts.list(None, MOST_ALERTS, |alert| alert.acknowledged.is_none()).len()
                as u64,
            audit: self.audit(),
            engine: self.runs.launcher.engine.counts(),
            disk: self
                .quotas
                .free()
                .ok()
                .map(|free| DiskSample { free: free.bytes, total: free.total_bytes }),
            resident_memory: resident_memory().unwrap_or_default(),
            open_files: open_files().unwrap_or_default(),
            processes: processes.sum::<usize>() as u64,
            spans: self.traces.counts(),
            egress_open: egress.map(|egress| egress.view().counts().open).sum(),
            egress_bytes: self.runs.launcher.egress_bytes(),
            tenants: self.tenants(),
            node: Some(self.node.sample()),
        }
    }

    /// Returns the bounds of the policy's tenants. Principals that are tenants by themselves would make labels without end.
    fn tenants(&self) -> Vec<TenantSample> {
        let policy = self.gateway.policy();
        if policy.tenants().is_empty() {
            return Vec::new();
        }
        let report = self.runs.launcher.tenancy().report(&self.runs.used_by_principal(), None).into_iter();
        let named = report.filter(|of| policy.tenants().named().any(|(name, _)| name == of.tenant));
        named
            .flat_map(|of| {
                let bounded = of
                    .used
                    .into_iter()
                    .filter_map(move |(resource, used)| Some((resource, used, of.bounds.of(resource)?)));
                bounded.map(move |(resource, used, limit)| TenantSample {
                    tenant: of.tenant.clone(),
                    bound: resource.key(),
                    used: ratio(used, limit),
                })
            })
            .collect()
    }

    /// Adds up the kinds of each profile: their names, how many wait, and how many should.
    fn pool(fills: impl Iterator<Item = (String, usize, usize)>) -> BTreeMap<String, PoolSample> {
        let mut pool: BTreeMap<String, PoolSample> = BTreeMap::new();
        for (name, ready, target) in fills {
            let profile = name.split('/').next().unwrap_or_default();
            let sample = pool.entry(profile.to_owned()).or_default();
            sample.waiting += ready as u64;
            sample.wanted += target as u64;
        }
        pool
    }

    fn audit(&self) -> AuditSample {
        let head = self.index.head();
        let indexed = match *self.index.states().borrow() {
            IndexState::Building(to) | IndexState::Ready(to) => to,
            IndexState::Failed => 0,
        };
        let signed = self.audit.checkpoints().borrow().as_ref().map_or(0, |(checkpoint, _)| checkpoint.size);
        AuditSample {
            is_available: self.audit.is_available(),
            head,
            lag: self.audit.lag(),
            index_lag: head.saturating_sub(indexed),
            unsigned: head.saturating_sub(signed),
        }
    }
}

/// Returns the part of a bound that is used. A use that is not known, and any of a bound of nothing, is all of it.
#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn ratio(used: Option<u64>, limit: u64) -> f64 {
    match used {
        Some(0) => 0.0,
        Some(used) if limit > 0 => used as f64 / limit as f64,
        _ => 1.0,
    }
}

/// Returns the time since `millis` after the beginning of 1970.
fn age(millis: u64) -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(millis))
}

/// Returns the resident memory of this process, bytes, as proc(5) has it in `statm`.
#[expect(clippy::disallowed_methods, reason = "a file of /proc about this process")]
fn resident_memory() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}

#[expect(clippy::disallowed_methods, reason = "a directory of /proc about this process")]
fn open_files() -> Option<u64> {
    // One of them is the directory that is read.
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as u64)
}
