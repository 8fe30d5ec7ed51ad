//! Maintains the log at intervals: makes checkpoints, and compresses or removes old segments.

use std::sync::Arc;
use std::time::Duration;

use audit::{Policy, RetentionError};
use refusal::chain;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::log::AuditLog;

/// Time between checks for old segments; shorter if they become old sooner.
const LOOK: Duration = Duration::from_secs(60);

/// Intervals, and the policy for old segments.
#[derive(Debug, Clone)]
pub struct Maintenance {
    /// Time between two checkpoints of a growing log.
    pub checkpoint_interval: Duration,
    /// Ages at which segments are compressed or removed.
    pub policy: Policy,
}

impl Maintenance {
    /// Runs until `stop`. Removes only records up to the one that `released` returns: no start needs them.
    pub async fn run<F: Future<Output = u64>>(
        self,
        log: Arc<AuditLog>,
        released: impl Fn() -> F,
        stop: CancellationToken,
    ) {
        let ages = [self.policy.compress_after, self.policy.remove_after].into_iter().flatten();
        let look = ages.min().map_or(LOOK, |age| (age / 2).clamp(Duration::from_secs(1), LOOK));
        let mut sign = ticks(self.checkpoint_interval);
        let mut tidy = ticks(look);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                // The thread logs its failures; the next tick retries.
                _ = sign.tick() => { let _ = log.checkpoint().await; }
                _ = tidy.tick() => {
                    let released = released().await;
                    self.tidy(&log, released, &stop).await;
                }
            }
        }
    }

    async fn tidy(&self, log: &Arc<AuditLog>, released: u64, stop: &CancellationToken) {
        let covered = log.checkpoints().borrow().as_ref().map_or(0, |(checkpoint, _)| checkpoint.size);
        let _held = log.hold_segments().await;
        let (policy, directory) = (self.policy, log.directory().to_owned());
        let stopped = stop.clone();
        let work = move || -> Result<_, RetentionError> {
            audit::sweep(&directory)?;
            while !stopped.is_cancelled() {
                let Some(segment) = audit::compress_next(&directory, &policy, covered)? else { break };
                tracing::debug!(segment, "a segment of the audit log was compressed");
            }
            audit::removal(&directory, &policy, covered.min(released))
        };
        let removal = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(Some(removal))) => removal,
            Ok(Ok(None)) => return,
            Ok(Err(error)) => {
                tracing::error!(error = chain(&error), "the audit log's old segments could not be tidied");
                return;
            }
            Err(error) => {
                tracing::error!(error = %error, "tidying the audit log failed");
                return;
            }
        };
        let last = removal.last_sequence();
        if log.remove(removal).await.is_err() {
            return;
        }
        let directory = log.directory().to_owned();
        match tokio::task::spawn_blocking(move || audit::sweep(&directory)).await {
            Ok(Ok(())) => {
                log.forget(last);
                tracing::info!(last, "the audit log's oldest segments were removed, up to this record");
            }
            Ok(Err(error)) => {
                tracing::error!(error = %error, "the audit log's oldest segments could not be removed; the next check tries again");
            }
            Err(error) => tracing::error!(error = %error, "tidying the audit log failed"),
        }
    }
}

fn ticks(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
