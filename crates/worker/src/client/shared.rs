//! What a stream's tasks share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wire::worker::v1::{ToWorker, to_worker};

use crate::client::table::Table;
use crate::client::{CloseReason, ConnectOptions, LaneError};
use crate::frame::encode;

/// Frames that wait for the worker.
const FRAMES: usize = 64;

/// The state of one stream.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: ConnectOptions,
    /// `None` while the stream is open.
    pub(super) closed: watch::Sender<Option<CloseReason>>,
    /// Cancelled when the stream is closed.
    pub(super) stop: CancellationToken,
    /// A pong has come.
    pub(super) pong: Notify,
    /// The calls' drivers.
    pub(super) drivers: TaskTracker,
    table: Mutex<Table>,
    frames: mpsc::Sender<Vec<u8>>,
    last_id: AtomicU64,
}

impl Shared {
    /// An open stream, and the frames to be written to it.
    pub(super) fn new(options: ConnectOptions) -> (Arc<Self>, mpsc::Receiver<Vec<u8>>) {
        let (frames, queue) = mpsc::channel(FRAMES);
        let shared = Self {
            options,
            closed: watch::Sender::new(None),
            stop: CancellationToken::new(),
            pong: Notify::new(),
            drivers: TaskTracker::new(),
            table: Mutex::default(),
            frames,
            last_id: AtomicU64::new(0),
        };
        (Arc::new(shared), queue)
    }

    /// The number of the next call.
    pub(super) fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Works on the table. Never held across an await.
    pub(super) fn table<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Closes the stream, unless it is closed: the first reason is the one that counts.
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

    /// What has become of a call on a closed stream.
    pub(super) fn lost(&self) -> LaneError {
        LaneError::Lost(self.closed.borrow().unwrap_or(CloseReason::Shutdown))
    }

    /// Waits for a place in the queue of frames.
    pub(super) async fn place(&self) -> Result<mpsc::Permit<'_, Vec<u8>>, LaneError> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(self.lost()),
            place = self.frames.reserve() => place.map_err(|_| self.lost()),
        }
    }

    /// Queues an encoded frame.
    pub(super) async fn send(&self, frame: Vec<u8>) -> Result<(), LaneError> {
        self.place().await?.send(frame);
        Ok(())
    }

    /// Queues a short frame.
    pub(super) async fn say(&self, id: u64, body: to_worker::Body) -> Result<(), LaneError> {
        let frame = encode(&ToWorker { id, body: Some(body) }).map_err(|_| LaneError::TooLarge)?;
        self.send(frame).await
    }
}
