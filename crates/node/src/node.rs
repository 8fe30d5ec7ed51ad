//! The node of a daemon: shows it, drains it, and stops its runs at the deadline of a drain.
//!
//! ```text
//!  SERVING ─DrainNode─► DRAINING ─last run ends─► DRAINED
//!     ▲                    │ deadline: each run ends with NODE_DRAINED  │
//!     └────────────────────┴───────────── UndrainNode ──────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use audit_service::AuditLog;
use bases::Bases;
use futures_util::future::join_all;
use identity::Principal;
use metrics::NodeSample;
use policy::InForce;
use refusal::Refusal;
use runs::Runs;
use runs::record::EndCause;
use serde_json::json;
use tenants::Amounts;
use timestamp::Timestamp;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::v1;
use wire::v1::node::State;

use crate::drain::{Drain, MAX_DEADLINE, MAX_REASON, is_reason};
use crate::gate::Gate;
use crate::images::Images;
use crate::watchers::Watchers;

/// Maximum number of bases, and of kinds in the pool, that are shown.
const MOST: usize = 256;
/// Longest time between two looks at the clock for a deadline. The clock of a sleep stops with a host that is suspended, and the time
/// of day can be set.
const LOOK: Duration = Duration::from_secs(60);
/// Package of the API.
const API: &str = "cofferdam.v1";

/// A node.
pub struct Node {
    gate: Arc<Gate>,
    runs: Arc<Runs>,
    bases: Arc<Bases>,
    audit: Arc<AuditLog>,
    policy: InForce,
    images: Images,
    /// Version of the daemon.
    version: &'static str,
    /// One change at a time, so that the last one on record is in force and in the file.
    changing: Mutex<()>,
    pub(crate) watchers: Watchers,
    pub(crate) tasks: TaskTracker,
    pub(crate) stop: CancellationToken,
}

impl Node {
    /// Returns the node of a daemon of this version. The pool of a node that is drained stays empty.
    pub fn new(
        version: &'static str,
        gate: Arc<Gate>,
        (runs, bases, audit): (Arc<Runs>, Arc<Bases>, Arc<AuditLog>),
        policy: InForce,
        (tasks, stop): (TaskTracker, CancellationToken),
    ) -> Arc<Self> {
        runs.launcher.pool.set_closed(gate.is_drained());
        Arc::new(Self {
            gate,
            runs,
            bases,
            audit,
            policy,
            images: Images::default(),
            version,
            changing: Mutex::default(),
            watchers: Watchers::new(),
            tasks,
            stop,
        })
    }

    /// Returns the admission to the node.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the sum of what runs take.
    fn used(&self) -> Amounts {
        let used = self.runs.used_by_principal().into_values();
        self.gate.bounds.taken(used.fold(Amounts::default(), |sum, one| sum + one))
    }

    fn state(&self, used: Amounts) -> State {
        match (self.gate.is_drained(), used.runs) {
            (false, _) => State::Serving,
            (true, 0) => State::Drained,
            (true, _) => State::Draining,
        }
    }

    /// Returns the state and the amounts for the metrics.
    pub fn sample(&self) -> NodeSample {
        let (used, most) = (self.used(), self.gate.bounds.most);
        let amounts = [
            ("runs", most.runs, used.runs),
            ("memory_mib", most.memory_mib, used.memory_mib),
            ("cpu_millis", most.cpu_millis, used.cpu_millis),
            ("disk_mib", most.disk_mib, used.disk_mib),
        ];
        let state = match self.state(used) {
            State::Draining => "draining",
            State::Drained => "drained",
            State::Serving | State::Unspecified => "serving",
        };
        NodeSample { state, amounts }
    }

    /// Returns the node as a principal may see it.
    pub async fn shown_to(&self, principal: &Principal) -> v1::Node {
        let policy = self.policy.policy();
        let images = self.images.permitted(&self.runs.launcher, &policy).await;
        // After the engine's answer, which may have taken seconds.
        let used = self.used();
        let service = self.gate.service().borrow().clone();
        let since = service.drain.as_ref().map(|drain| drain.since).or(service.since);
        let (settings, host) = (&self.gate.settings, &self.runs.launcher.host);
        let bases = self.bases.at_hand(principal, MOST).into_iter();
        v1::Node {
            node_id: settings.id.map_or(0, |id| id.get().into()),
            instance: self.runs.launcher.instance.clone(),
            labels: settings.labels.clone().into_iter().collect(),
            versions: Some(v1::NodeVersions {
                daemon: self.version.to_owned(),
                engine: host.engine_version.clone(),
                kernel: host.kernel.clone(),
                api: API.to_owned(),
                architecture: host.architecture.clone(),
            }),
            state: self.state(used).into(),
            state_since: since.map(Timestamp::to_wire),
            drain: service.drain.map(|drain| v1::NodeDrain {
                reason: drain.reason,
                principal: drain.principal,
                deadline: drain.deadline.map(Timestamp::to_wire),
            }),
            capacity: Some(to_wire(self.gate.bounds.most)),
            used: Some(to_wire(used)),
            capacity_is_enforced: self.gate.bounds.are_enforced,
            creates_per_minute: self.gate.creates_per_minute(),
            images,
            bases: bases.map(|(id, digest)| v1::NodeBase { base_id: id.to_string(), digest }).collect(),
            pools: self.pools(),
        }
    }

    fn pools(&self) -> Vec<v1::NodePool> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let fills = self.runs.launcher.pool.levels().fills.into_iter();
        let pool = |fill: warm_pool::Fill| v1::NodePool {
            name: fill.name,
            waiting: number(fill.ready),
            wanted: number(fill.target),
        };
        let mut pools: Vec<_> = fills.map(pool).collect();
        pools.sort_by(|one, other| one.name.cmp(&other.name));
        pools.truncate(MOST);
        pools
    }

    /// Drains the node for a principal, or gives its drain another reason and deadline.
    pub(crate) async fn drain(&self, asked: Asked, principal: &Principal) -> Result<(), Refusal> {
        let _turn = self.changing.lock().await;
        let now = Timestamp::now();
        let drain = Drain {
            since: self.gate.drain().map_or(now, |before| before.since),
            reason: asked.reason,
            principal: principal.name.clone(),
            deadline: asked.deadline.map(|left| now.after(left)),
        };
        let details = json!({
            "reason": drain.reason,
            "deadline": drain.deadline.map(|deadline| deadline.to_string()),
            "living": self.used().runs,
        });
        self.audit.record(Event::new(Kind::NodeDrained).principal(&principal.name).details(details)).await?;
        self.store(Some(drain.clone())).await?;
        tracing::warn!(reason = drain.reason, principal = principal.name, "this node is drained");
        self.gate.put(Some(drain));
        self.runs.launcher.pool.set_closed(true);
        // A run that was admitted at this moment is in the table after this lock, and the answer counts it.
        drop(self.runs.all_living());
        Ok(())
    }

    /// Puts the node into service again.
    pub(crate) async fn undrain(&self, principal: &Principal) -> Result<(), Refusal> {
        let _turn = self.changing.lock().await;
        let Some(before) = self.gate.drain() else { return Ok(()) };
        let details = json!({ "reason": before.reason, "since": before.since.to_string() });
        self.audit
            .record(Event::new(Kind::NodeUndrained).principal(&principal.name).details(details))
            .await?;
        self.store(None).await?;
        tracing::warn!(principal = principal.name, "this node makes runs again");
        self.gate.put(None);
        self.runs.launcher.pool.set_closed(false);
        Ok(())
    }

    /// Stores the drain, so that the next daemon has it.
    async fn store(&self, drain: Option<Drain>) -> Result<(), Refusal> {
        let file = self.gate.file.clone();
        let stored = tokio::task::spawn_blocking(move || file.write(drain.as_ref())).await;
        let stored = stored.map_err(|error| Refusal::internal("storing the drain of the node", &error))?;
        stored.map_err(|error| {
            Refusal::internal("storing the drain of the node, which stays as it was", &error)
        })
    }

    /// Stops the runs at the deadline of a drain, until the daemon stops.
    pub async fn keep(self: Arc<Self>) {
        let mut service = self.gate.service();
        loop {
            let left = service.borrow_and_update().drain.as_ref().and_then(Drain::left);
            if left.is_some_and(|left| left.is_zero()) {
                self.stop_runs().await;
            }
            let look = async {
                match left {
                    Some(left) if !left.is_zero() => tokio::time::sleep(left.min(LOOK)).await,
                    // The runs go on, or were stopped.
                    _ => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return,
                changed = service.changed() => if changed.is_err() {
                    return;
                },
                () = look => {}
            }
        }
    }

    /// Has each run end. A node that is undrained meanwhile keeps the others.
    async fn stop_runs(&self) {
        let living = self.runs.all_living();
        tracing::warn!(
            runs = living.len(),
            "the deadline of the drain has passed: the runs of this node end"
        );
        // Together: the task of a run that is launched takes its commands late.
        let ends = living.iter().map(|(_, run)| async {
            if self.gate.is_drained() {
                run.end(EndCause::NodeDrained).await;
            }
        });
        join_all(ends).await;
    }
}

/// A valid request to drain.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    reason: String,
    deadline: Option<Duration>,
}

impl Asked {
    pub(crate) fn parse(request: &v1::DrainNodeRequest) -> Result<Self, Refusal> {
        let reason = request.reason.trim().to_owned();
        if !is_reason(&reason) {
            let message = format!("must be 1 to {MAX_REASON} bytes without control characters");
            return Err(Refusal::invalid("reason", message));
        }
        let deadline = request.deadline.map(|deadline| {
            let valid = timestamp::duration_from_wire(&deadline).filter(|deadline| *deadline <= MAX_DEADLINE);
            let days = MAX_DEADLINE.as_secs() / 86_400;
            valid.ok_or_else(|| {
                Refusal::invalid("deadline", format!("must be more than zero, and at most {days} days"))
            })
        });
        Ok(Self { reason, deadline: deadline.transpose()? })
    }
}

/// Returns amounts for the API, where an amount that is not known is zero.
fn to_wire(amounts: Amounts) -> v1::NodeAmounts {
    let known = |amount| if amount == u64::MAX { 0 } else { amount };
    v1::NodeAmounts {
        runs: known(amounts.runs),
        memory_mib: known(amounts.memory_mib),
        cpu_millis: known(amounts.cpu_millis),
        disk_mib: known(amounts.disk_mib),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(reason: &str, deadline: Option<(i64, i32)>) -> Result<Asked, String> {
        let deadline = deadline.map(|(seconds, nanos)| wire::Duration { seconds, nanos });
        let request = v1::DrainNodeRequest { reason: reason.into(), deadline };
        Asked::parse(&request).map_err(|refusal| refusal.metadata[0].1.clone())
    }

    #[test]
    fn a_drain_needs_a_reason_and_a_deadline_in_bounds() {
        let asked = Asked { reason: "a new kernel".into(), deadline: Some(Duration::from_millis(90_500)) };
        assert_eq!(parsed(" a new kernel ", Some((90, 500_000_000))), Ok(asked));
        assert_eq!(parsed("x", None).unwrap().deadline, None);
        assert!(parsed(&"x".repeat(512), Some((30 * 86_400, 0))).is_ok());
        for reason in ["", "  ", "a\nb", "a\u{1b}[31mb", &"x".repeat(513)] {
            assert_eq!(parsed(reason, None), Err("reason".into()), "{reason:?}");
        }
        for deadline in [(0, 0), (-1, 0), (1, -1), (30 * 86_400, 1), (i64::MAX, 0)] {
            assert_eq!(parsed("x", Some(deadline)), Err("deadline".into()), "{deadline:?}");
        }
    }

    #[test]
    fn an_amount_that_is_not_known_is_zero() {
        let amounts = Amounts { runs: 3, memory_mib: u64::MAX, cpu_millis: 4_000, disk_mib: 0 };
        let shown = v1::NodeAmounts { runs: 3, memory_mib: 0, cpu_millis: 4_000, disk_mib: 0 };
        assert_eq!(to_wire(amounts), shown);
    }
}
