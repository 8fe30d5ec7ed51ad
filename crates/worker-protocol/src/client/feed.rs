//! Passes a call's output from its backlog to its sink, and gives the worker credit for it.
//!
//! This is a separate task, because a sink may be slow and the end of a command must not wait for it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use wire::worker::v1::{Credit, to_worker::Body};

use crate::client::OutputSink;
use crate::client::backlog::Backlog;
use crate::client::shared::Shared;
use crate::client::window::CREDIT;

/// A running feeder. Dropping it drops the output that its sink has not taken.
pub(super) struct Feeder {
    backlog: Arc<Backlog>,
    task: AbortOnDropHandle<()>,
}

impl Feeder {
    /// Starts to pass output on. Without a sink it counts as taken.
    pub(super) fn start(
        shared: Arc<Shared>,
        id: u64,
        backlog: Arc<Backlog>,
        sink: Option<Arc<dyn OutputSink>>,
    ) -> Self {
        let task = tokio::spawn(feed(shared, id, Arc::clone(&backlog), sink));
        Self { backlog, task: AbortOnDropHandle::new(task) }
    }

    /// Ends the input, and waits for the sink to take all output, at most until this time.
    pub(super) async fn finish(mut self, until: Instant) {
        self.backlog.close();
        // A panic of the sink ends the feeder early.
        let _ = timeout_at(until, &mut self.task).await;
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.backlog.discard();
    }
}

async fn feed(shared: Arc<Shared>, id: u64, backlog: Arc<Backlog>, sink: Option<Arc<dyn OutputSink>>) {
    let mut owed = 0;
    while let Some(piece) = backlog.next().await {
        let length = piece.data.len() as u64;
        if let Some(sink) = &sink {
            sink.take(piece.stream, piece.offset, piece.data).await;
        }
        owed += length;
        if owed >= CREDIT && shared.table(|table| table.grant(id, owed)) {
            // A closed stream takes no credit. Output that was received before is still passed on.
            let _ = shared.say(id, Body::Credit(Credit { bytes: owed })).await;
            owed = 0;
        }
    }
}
