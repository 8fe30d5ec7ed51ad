//! Sends spans in batches, in one task. No call waits for it.
//!
//! ```text
//!  calls ─try_send─► queue, bounded ─► batch, for a second at most ─► request ─► sent
//!              └ full: lost, counted                                    ├ later: twice more
//!                                                                      └ refused: lost, counted
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;
use webhook::{Tls, backoff};

use crate::otlp;
use crate::send::Destination;
use crate::span::Span;
use crate::tracer::{Counts, Share, Traces};

/// Most items of the queue. An item has the spans of one call or connection.
const QUEUE: usize = 1_024;
/// Spans after which a batch is sent at once.
const BATCH: usize = 512;
/// Longest time for which a span waits for others.
const LINGER: Duration = Duration::from_secs(1);
/// Attempts for one batch.
const ATTEMPTS: u32 = 3;
/// Wait before the second attempt.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Least time between two messages about a receiver that fails.
const QUIET: Duration = Duration::from_secs(60);

/// The task that sends.
#[derive(Debug)]
pub struct Exporter {
    task: JoinHandle<()>,
    closing: CancellationToken,
}

impl Exporter {
    /// Starts to export to `destination`. `share` is the share of roots that are recorded.
    pub fn start(destination: Destination, share: Share, tls: Tls) -> (Traces, Self) {
        let (queue, spans) = mpsc::channel(QUEUE);
        let (counts, closing) = (Arc::new(Counts::default()), CancellationToken::new());
        let task = Task {
            spans,
            destination,
            tls,
            instance: Uuid::new_v4().to_string(),
            counts: counts.clone(),
            closing: closing.clone(),
            told: None,
            lost_since: 0,
        };
        (Traces::new(queue, counts, share), Self { task: tokio::spawn(task.run()), closing })
    }

    /// Sends all spans that wait, within `patience`, and ends.
    pub async fn finish(mut self, patience: Duration) {
        self.closing.cancel();
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

struct Task {
    spans: mpsc::Receiver<Vec<Span>>,
    destination: Destination,
    tls: Tls,
    instance: String,
    counts: Arc<Counts>,
    closing: CancellationToken,
    /// Moment of the last message about a receiver that fails.
    told: Option<Instant>,
    /// Spans lost since the receiver began to fail.
    lost_since: u64,
}

impl Task {
    async fn run(mut self) {
        while let Some(batch) = self.batch().await {
            self.deliver(batch).await;
        }
    }

    /// Returns the next batch. Returns `None` if there is none and the daemon stops.
    async fn batch(&mut self) -> Option<Vec<Span>> {
        let first = self.closing.run_until_cancelled(self.spans.recv()).await;
        let mut batch = match first {
            Some(spans) => spans?,
            None => self.spans.try_recv().ok()?,
        };
        let until = Instant::now() + LINGER;
        while batch.len() < BATCH {
            tokio::select! {
                biased;
                spans = self.spans.recv() => match spans {
                    Some(spans) => batch.extend(spans),
                    None => break,
                },
                () = sleep_until(until) => break,
                () = self.closing.cancelled() => break,
            }
        }
        Some(batch)
    }

    async fn deliver(&mut self, batch: Vec<Span>) {
        let count = batch.len();
        let body = otlp::request(&self.instance, batch);
        let mut attempt = 1;
        let failed = loop {
            let failed = match self.destination.send(&self.tls, &body).await {
                Ok(()) => {
                    self.counts.sent.fetch_add(count as u64, Ordering::Relaxed);
                    return self.recovered();
                }
                Err(failed) => failed,
            };
            if failed.for_good || attempt == ATTEMPTS || self.closing.is_cancelled() {
                break failed;
            }
            let wait = backoff(FIRST_RETRY, attempt, Uuid::new_v4().as_u128());
            // A stop does not wait for another attempt. It makes the last one at once.
            self.closing.run_until_cancelled(tokio::time::sleep(wait)).await;
            attempt += 1;
        };
        self.counts.lose(count);
        self.lost_since += count as u64;
        if self.told.is_none_or(|told| told.elapsed() >= QUIET) {
            self.told = Some(Instant::now());
            tracing::warn!(
                why = failed.message,
                lost = self.lost_since,
                "traces cannot be exported: check `traces` in the configuration and the receiver"
            );
        }
    }

    /// Logs that the receiver takes spans again.
    fn recovered(&mut self) {
        if self.told.take().is_some() {
            tracing::info!(lost = self.lost_since, "traces are exported again");
        }
        self.lost_since = 0;
    }
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
