//! From a call's backlog to its sink, and credit back to the worker: a task of its own, because a sink may be slow
//! and the end of a command must not wait for it.

use std::sync::Arc;

use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use wire::worker::v1::{Credit, to_worker::Body};

use crate::client::OutputSink;
use crate::client::backlog::Backlog;
use crate::client::shared::Shared;
use crate::client::window::CREDIT;

/// A feeder at work. Dropping it drops what its sink has not taken.
pub(super) struct Feeder {
    backlog: Arc<Backlog>,
    task: AbortOnDropHandle<()>,
}

impl Feeder {
    /// Begins to hand output over; without a sink it is counted as taken.
    pub(super) fn start(
        shared: Arc<Shared>,
        id: u64,
        backlog: Arc<Backlog>,
        sink: Option<Arc<dyn OutputSink>>,
    ) -> Self {
        let task = tokio::spawn(feed(shared, id, Arc::clone(&backlog), sink));
        Self { backlog, task: AbortOnDropHandle::new(task) }
    }

    /// No more output comes: waits until everything is taken, at most until then.
    pub(super) async fn finish(mut self, until: Instant) {
        self.backlog.close();
        // A sink that panicked has taken what it will.
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
            // A stream that has closed takes no credit; what came on it is still handed over.
            let _ = shared.say(id, Body::Credit(Credit { bytes: owed })).await;
            owed = 0;
        }
    }
}
