//! Reads the audit stream for the rules, in one task. No call waits for it: while it is slow or broken, calls go on and alerts come
//! later.
//!
//! At start it reads as much of the log again as the rules remember, which restores their state. It fires only for records after
//! the stored position.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use audit::{Kind, Reader};
use audit_service::AuditLog;
use futures_util::FutureExt as _;
use gateway::Gateway;
use identity::RunId;
use refusal::Refusal;
use runs::Runs;
use timestamp::UnixMillis;
use tokio_util::sync::CancellationToken;

use super::alerts::Alerts;
use super::detector::Detector;
use super::grant_expansion::GrantExpansion;
use super::intake::Intake;
use super::seen::Agent;

/// Timestamp between retries of failed steps, and between checks for measures that are over.
const TICK: Duration = Duration::from_secs(2);
/// Timestamp that records may wait for more: a rule looks at seconds and minutes.
const LINGER: Duration = Duration::from_millis(20);
/// Timestamp before a retry after a failure to read the log.
const AGAIN: Duration = Duration::from_secs(5);
/// Ticks without an alert after which the position is stored by itself.
const POSITION: u32 = 5;
/// Most milliseconds of the log that are read again at start, however long a rule remembers.
const MAX_MEMORY: u64 = 24 * 3600 * 1_000;

pub(super) struct Watch {
    pub(super) alerts: Arc<Alerts>,
    pub(super) audit: Arc<AuditLog>,
    pub(super) gateway: Arc<Gateway>,
    pub(super) runs: Arc<Runs>,
}

impl Watch {
    /// Watches until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        loop {
            match AssertUnwindSafe(self.follow(&stop)).catch_unwind().await {
                Ok(Ok(())) => break,
                Ok(Err(refusal)) => tracing::error!("anomaly detection is interrupted: {}", refusal.message),
                Err(_) => {
                    tracing::error!("anomaly detection is interrupted: the detector failed and starts again");
                }
            }
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
        self.alerts.keep_position().await;
    }

    async fn follow(&self, stop: &CancellationToken) -> Result<(), Refusal> {
        let mut policy = self.gateway.policy();
        let mut detector = Detector::new(policy.anomalies());
        let mut intake = Intake::new();
        let mut grants = GrantExpansion::new();
        let head = self.audit.head().map_or(0, |head| head.sequence);
        let memory = detector.memory().min(MAX_MEMORY);
        // Catches up with missed records as far as a rule remembers, and not from the beginning of the log.
        let known = self.alerts.position().max(self.beginning(head, memory).await);
        let after = self.beginning(known, memory).await;
        let mut follow = self.audit.read_after(after, true).lingering(LINGER);
        let mut caught_up = head <= after;
        let mut raised = false;
        let mut ticks = tokio::time::interval(TICK);
        let mut quiet = 0;
        loop {
            let mut next = std::pin::pin!(follow.next());
            let lines = loop {
                tokio::select! {
                    () = stop.cancelled() => return Ok(()),
                    lines = &mut next => break lines?,
                    _ = ticks.tick(), if caught_up => {
                        self.alerts.finish().await;
                        quiet += 1;
                        if quiet == POSITION {
                            self.alerts.keep_position().await;
                        }
                    }
                }
            };
            let Some(lines) = lines else { return Ok(()) };
            let current = self.gateway.policy();
            if current.digest() != policy.digest() {
                detector.configure(current.anomalies());
            }
            policy = current;
            for line in &lines {
                let record = &line.record;
                if record.event.kind == Kind::Alert {
                    self.alerts.found(record).await;
                }
                let seen =
                    intake.take(record.sequence, UnixMillis::from(record.time).0, &record.event, &|run| {
                        self.agent_of(run)
                    });
                let teams = |agent: &str| policy.teams_of(agent).map(|(name, _)| name.into()).collect();
                let role = record.event.role.as_deref();
                let gift = seen.as_ref().and_then(|seen| grants.before(seen, role, teams));
                for firing in gift.iter().chain(&seen).flat_map(|seen| detector.observe(seen)) {
                    if record.sequence > known {
                        let setting = policy.anomalies().of(firing.rule);
                        raised |= self.alerts.fire(&firing, &setting, UnixMillis::from(record.time).0);
                    }
                }
                self.alerts.advance(record.sequence);
                caught_up |= record.sequence >= head;
            }
            quiet = 0;
            // Further occurrences can wait for the next tick: after a crash they are counted again.
            if caught_up && raised {
                self.alerts.finish().await;
                raised = false;
            }
        }
    }

    /// Returns the record after which to begin, so that everything within `memory` milliseconds before record `known` is read.
    ///
    /// Searches the log by time. If the log's beginning was removed, starts at what is left.
    async fn beginning(&self, known: u64, memory: u64) -> u64 {
        let directory = self.audit.directory().to_owned();
        let time_of = move |sequence: u64| -> Option<u64> {
            let mut reader = Reader::from(&directory, sequence.saturating_sub(1));
            reader.next()?.ok().map(|record| UnixMillis::from(record.time).0)
        };
        let search = tokio::task::spawn_blocking(move || {
            let Some(end) = time_of(known) else { return known };
            let (mut low, mut high) = (0, known);
            while low < high {
                let middle = low + (high - low) / 2;
                match time_of(middle + 1) {
                    Some(time) if time.saturating_add(memory) > end => high = middle,
                    _ => low = middle + 1,
                }
            }
            low
        });
        search.await.unwrap_or(known)
    }

    fn agent_of(&self, run: &str) -> Option<Agent> {
        let record = self.runs.get(RunId::parse(run).ok()?).ok()?;
        Some(Agent {
            principal: record.spec.principal.as_str().into(),
            id: record.spec.agent_id.as_str().into(),
        })
    }
}
