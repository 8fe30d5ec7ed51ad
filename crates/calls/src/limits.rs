//! Keeps the gateway's counters over a restart, and shows them.
//!
//! The audit log is the truth: it has an intent for each call that was counted, durable before any effect. So the limits write
//! nothing on a call's path. A start need not read a day of the log, because the counters are copied to `limits.json` now and then
//! and at an orderly stop. The start reads the copy and counts the intents after it.
//!
//! A crash loses at most the calls that the log itself can lose: those of the last 10 ms that only read. On the other side, a call
//! that was under way when the copy was made may be counted twice.
//!
//! Throttles are in the same copy. Each is recorded before it is in force, so a start finds those after the copy, too.

#![expect(clippy::disallowed_methods, reason = "the daemon's own counters")]

mod beside;
mod show;
mod slot;
mod tenants;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::tenants::Tenancy;
use audit::{Event, Kind, Verdict};
use audit_service::{AuditLog, Unavailable};
use gateway::Gateway;
use gateway::limits::concurrency::{Reservations, Whole};
use gateway::limits::{Agent, Counted, KeptCounters, Limits as Counters, Throttle, ThrottleSource};
use refusal::{Refusal, chain};
use serde::{Deserialize, Serialize};
use serde_json::json;
use timestamp::{SystemClock, UnixMillis};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

pub(crate) use beside::Queued;
pub use show::{show, throttle_agent};
pub use tenants::show_tenants;

/// Time between copies. At 10,000 calls a second the log after one is read in seconds.
const COPY: Duration = Duration::from_secs(30);
/// Most bytes of a copy. The daemon writes no larger one.
const MAX_BYTES: u64 = 1 << 30;

/// The file's content.
#[derive(Debug, Serialize, Deserialize)]
struct Copy {
    counters: KeptCounters,
    throttles: Vec<(Agent, Throttle)>,
    /// The time at which it was made.
    at: UnixMillis,
}

/// The limits of a daemon.
pub struct Limits {
    gateway: Arc<Gateway>,
    audit: Arc<AuditLog>,
    tenancy: Arc<Tenancy>,
    path: PathBuf,
    /// The calls that run. No entry survives a daemon.
    reservations: Reservations,
    /// The calls that wait beside an approval. No entry survives a daemon.
    beside: Arc<beside::Waiting>,
    /// Held while a throttle is recorded and put into force: a copy contains both or neither.
    changing: Mutex<()>,
}

impl Limits {
    /// Restores the counters of an earlier daemon. Reads the whole log if the copy cannot be read.
    pub async fn open(
        (gateway, audit, tenancy): (Arc<Gateway>, Arc<AuditLog>, Arc<Tenancy>),
        state_dir: &Path,
        calls: Whole,
    ) -> anyhow::Result<Arc<Self>> {
        let path = state_dir.join("limits.json");
        let copy = match read(&path) {
            Ok(copy) => copy,
            Err(error) => {
                tracing::warn!(%error, "the copy of the rate limits' counters cannot be read; the audit log is read instead");
                None
            }
        };
        let counters = gateway.limits();
        if let Some(Copy { throttles, at, .. }) = &copy {
            for (agent, throttle) in throttles {
                counters.throttle(ThrottleSource::Operator, agent, throttle.taken_up(*at, UnixMillis::now()));
            }
        }
        let kept = copy.map(|copy| copy.counters).unwrap_or_default();
        let sequence = kept.sequence;
        let replay = counters.restore(kept);
        let (mut follow, mut counted) = (audit.read_after(sequence, false), 0_u64);
        let failed = |refusal: Refusal| anyhow::anyhow!("the rate limits: {}", refusal.message);
        while let Some(lines) = follow.next().await.map_err(failed)? {
            for line in lines {
                let at = UnixMillis::from(line.record.time);
                let event = &line.record.event;
                if let Some(call) = intent(line.record.sequence, at, event) {
                    replay.intent(call);
                    counted += 1;
                } else if event.kind == Kind::AgentThrottled {
                    again(counters, event, at);
                }
            }
        }
        tracing::info!(after = sequence, calls = counted, "the counters of rate limits were restored");
        let reservations = Reservations::new(calls, Arc::new(SystemClock));
        Ok(Arc::new(Self {
            gateway,
            audit,
            tenancy,
            path,
            reservations,
            beside: Arc::default(),
            changing: Mutex::default(),
        }))
    }

    /// Replaces the limits on the calls of all runs.
    pub fn limit_calls(&self, calls: Whole) {
        self.reservations.limit(calls);
    }

    /// Returns the gateway's counters.
    pub(crate) fn counters(&self) -> &Counters {
        self.gateway.limits()
    }

    /// Throttles an agent: records the throttle, then puts it into force. `cause` is the reason, such as an alert and its id.
    pub(crate) async fn throttle(
        &self,
        agent: &Agent,
        throttle: Throttle,
        cause: serde_json::Value,
        by: &str,
    ) -> Result<Throttle, Unavailable> {
        let _changing = self.changing.lock().await;
        let details =
            json!({ "per_minute": throttle.per_minute, "until_ms": throttle.until.0, "cause": cause });
        self.audit.record(event(agent, details, by)).await?;
        Ok(self.counters().throttle(ThrottleSource::Operator, agent, throttle))
    }

    /// Lifts an agent's throttle.
    pub(crate) async fn lift(
        &self,
        agent: &Agent,
        cause: serde_json::Value,
        by: &str,
    ) -> Result<(), Unavailable> {
        let _changing = self.changing.lock().await;
        self.audit.record(event(agent, json!({ "lifted": true, "cause": cause }), by)).await?;
        lift(self.counters(), agent);
        Ok(())
    }

    /// Copies the counters now and then, until `stop`.
    pub async fn keep(&self, stop: CancellationToken) {
        let mut last = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(COPY) => {}
                () = stop.cancelled() => return,
            }
            // Without a new record there was no call.
            let head = self.audit.head().map(|head| head.sequence);
            if head != last {
                self.copy().await;
                last = head;
            }
        }
    }

    /// Copies the counters. If that fails, the start reads more of the log.
    pub async fn copy(&self) {
        let changing = self.changing.lock().await;
        let (gateway, audit, path) = (self.gateway.clone(), self.audit.clone(), self.path.clone());
        let written = tokio::task::spawn_blocking(move || {
            let counters = gateway.limits();
            let copy = Copy {
                counters: counters.keep(|| audit.head().map_or(0, |head| head.sequence)),
                throttles: operators(counters),
                at: UnixMillis::now(),
            };
            write(&path, &copy)
        });
        let written = written.await;
        drop(changing);
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = %chain(&error), "the rate limits' counters were not copied");
            }
            Err(error) => tracing::warn!(%error, "the rate limits' counters were not copied"),
        }
    }
}

/// Returns the record of a throttle. Its principal is the operator; the agent's principal is in the details.
fn event(agent: &Agent, mut details: serde_json::Value, by: &str) -> Event {
    details["agent_principal"] = agent.principal.as_str().into();
    Event::new(Kind::AgentThrottled).agent(&agent.id).details(details).principal(by)
}

/// Returns the call that a record's intent counted: one that a rule allowed, or sent to a reviewer.
fn intent(sequence: u64, at: UnixMillis, event: &Event) -> Option<Counted<'_>> {
    let admitted = matches!(event.decision.as_ref()?.outcome, Verdict::Allow | Verdict::Ask);
    (event.kind == Kind::CallIntent && admitted).then_some(())?;
    Some(Counted {
        sequence,
        at,
        principal: event.principal.as_deref()?,
        agent_id: event.agent_id.as_deref()?,
        run_id: event.run_id.as_deref()?,
        operation: event.operation.as_deref()?,
    })
}

/// Lifts an agent's throttles, those of alerts as well: the operator has decided.
fn lift(counters: &Counters, agent: &Agent) {
    for source in [ThrottleSource::Operator, ThrottleSource::Alert] {
        counters.lift_throttle(source, agent);
    }
}

/// Returns the throttles that operators set. A later daemon imposes those of alerts again by itself.
fn operators(counters: &Counters) -> Vec<(Agent, Throttle)> {
    let throttles = counters.throttles().into_iter();
    throttles
        .filter(|(_, source, _)| *source == ThrottleSource::Operator)
        .map(|(agent, _, throttle)| (agent, throttle))
        .collect()
}

/// Applies the change of a throttle again, from a record of the time `at`.
fn again(counters: &Counters, event: &Event, at: UnixMillis) {
    let (Some(id), Some(details)) = (&event.agent_id, &event.details) else { return };
    let Some(principal) = details.get("agent_principal").and_then(serde_json::Value::as_str) else { return };
    let agent = Agent { principal: principal.to_owned(), id: id.clone() };
    let number = |name: &str| details.get(name).and_then(serde_json::Value::as_u64);
    if details.get("lifted").is_some() {
        lift(counters, &agent);
    } else if let (Some(per_minute), Some(until)) = (number("per_minute"), number("until_ms")) {
        let per_minute = u32::try_from(per_minute).unwrap_or(u32::MAX);
        let throttle = Throttle { per_minute, until: UnixMillis(until) };
        counters.throttle(ThrottleSource::Operator, &agent, throttle.taken_up(at, UnixMillis::now()));
    }
}

fn read(path: &Path) -> std::io::Result<Option<Copy>> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if file.metadata()?.len() > MAX_BYTES {
        return Err(std::io::Error::other("it is too large"));
    }
    Ok(Some(serde_json::from_reader(std::io::BufReader::new(file))?))
}

fn write(path: &Path, copy: &Copy) -> std::io::Result<()> {
    atomic_file::replace(path, |file| {
        let mut out = std::io::BufWriter::new(file);
        serde_json::to_writer(&mut out, copy)?;
        std::io::Write::flush(&mut out)
    })
}
