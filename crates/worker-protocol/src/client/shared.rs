//! State that the tasks of a stream share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::worker::v1::{ToWorker, to_worker};

use crate::client::channel::Now;
use crate::client::outbound::{FrameSlot, Outbound};
use crate::client::table::Table;
use crate::client::{CloseReason, ConnectOptions, LaneError};
use crate::frame::encode;

/// The state of one stream.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ConnectOptions,
    /// `None` while the stream is open.
    pub(super) closed: watch::Sender<Option<CloseReason>>,
    /// Cancelled when the stream is closed.
    pub(super) stop: CancellationToken,
    pub(super) pong: Notify,
    /// Notified when the guest has taken the variables of its run.
    pub(super) taken: Notify,
    pub(super) drivers: TaskTracker,
    table: Mutex<Table>,
    pub(super) outbound: Outbound,
    last_id: AtomicU64,
}

impl Shared {
    /// Makes the state of an open stream, and the queue of frames to be written to it.
    pub(super) fn new(options: ConnectOptions, now: Option<Now>) -> (Arc<Self>, mpsc::Receiver<Vec<u8>>) {
        let (outbound, frames) = Outbound::new(now);
        let shared = Self {
            options,
            closed: watch::Sender::new(None),
            stop: CancellationToken::new(),
            pong: Notify::new(),
            taken: Notify::new(),
            drivers: TaskTracker::new(),
            table: Mutex::default(),
            outbound,
            last_id: AtomicU64::new(0),
        };
        (Arc::new(shared), frames)
    }

    /// Returns the id of the next call.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Runs `work` on the locked table. The lock is never held across an await.
    pub(super) fn table<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.table.lock())
    }

    /// Closes the stream, unless it is closed already. Only the first reason is kept.
    pub(super) fn close(&self, reason: CloseReason) {
        let first = self.closed.send_if_modified(|closed| {
            let first = closed.is_none();
            if first {
                *closed = Some(reason);
            }
            first
        });
        if first {
            tracing::debug!(%reason, "worker stream closed");
            self.stop.cancel();
            self.table(Table::clear_all);
        }
    }

    /// Returns the error of a call on a closed stream.
    pub(super) fn lost(&self) -> LaneError {
        LaneError::Lost(self.closed.borrow().unwrap_or(CloseReason::Shutdown))
    }

    /// Waits for a slot for a frame.
    pub(super) async fn slot(&self) -> Result<FrameSlot<'_>, LaneError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(self.lost()),
            slot = self.outbound.slot() => slot.ok_or_else(|| self.lost()),
        }
    }

    pub(super) async fn send(&self, frame: Vec<u8>) -> Result<(), LaneError> {
        self.slot().await?.send(frame);
        Ok(())
    }

    /// Sends a short frame.
    pub(super) async fn say(&self, id: u64, body: to_worker::Body) -> Result<(), LaneError> {
        let frame = encode(&ToWorker { id, body: Some(body) }).map_err(|_| LaneError::TooLarge)?;
        self.send(frame).await
    }
}
