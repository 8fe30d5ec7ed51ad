//! The daemon's side of the audit log: one thread owns the writer, everybody else hands it events.
//!
//! ```text
//!  record(event) ──► bounded queue ──► writer thread ──one write, one fdatasync──► log
//!       ▲                                   │
//!       └──── the record, once durable ─────┴──► head (subscribers read the log up to it)
//! ```
//!
//! Invariants:
//! * an event that was taken is written, in order, sooner or later: while the disk fails it waits, and the log is
//!   opened again every second;
//! * while it waits, [`AuditLog::available`] is false and no call is admitted: no sink, no call;
//! * a full queue makes callers wait; nothing is dropped.

mod filter;
mod follow;
mod index;
mod tail;
mod thread;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use audit::{Event, Head, Limits, OpenError, Opened, Record, Redactor, Writer};
use ops::Reason;
use tokio::sync::{mpsc, oneshot, watch};

use crate::status::Refusal;

pub(crate) use filter::Filter;
pub(crate) use follow::{Follow, Line};
pub(crate) use index::{Bound, Index, Query, State as IndexState};

/// Events that may wait for the writer.
const QUEUE: usize = 4_096;

/// One event, and who waits for it.
struct Entry {
    event: Event,
    written: Option<oneshot::Sender<Result<Record, Unavailable>>>,
}

/// The log cannot be written now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unavailable;

impl From<Unavailable> for Refusal {
    fn from(_: Unavailable) -> Self {
        Self::new(
            Reason::AuditUnavailable,
            "the audit log cannot be written, so nothing may happen; try again when the operator has mended it",
        )
    }
}

/// A handle on the log; cheap to share.
pub(crate) struct AuditLog {
    queue: mpsc::Sender<Entry>,
    head: watch::Receiver<Option<Head>>,
    available: watch::Receiver<bool>,
    /// Events that the queue has taken.
    taken: AtomicU64,
    /// Events of those that are on disk.
    written: watch::Receiver<u64>,
    directory: PathBuf,
    /// For all who follow the log.
    tail: Arc<tail::Tail>,
    redactor: Redactor,
    /// Set, and the thread woken, when somebody waits for what is in the queue.
    hurry: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl AuditLog {
    /// Opens the log in `directory` and starts its writer. The thread ends when the last handle is gone; join it to
    /// know that everything is on disk.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Opened, std::thread::JoinHandle<()>), OpenError> {
        Self::open_with(directory, Limits::default())
    }

    fn open_with(
        directory: &Path,
        limits: Limits,
    ) -> Result<(Self, Opened, std::thread::JoinHandle<()>), OpenError> {
        let (writer, opened) = Writer::open_with(directory, limits)?;
        let (queue, entries) = mpsc::channel(QUEUE);
        let (head_sender, head) = watch::channel(writer.head());
        let (available_sender, available) = watch::channel(true);
        let (written_sender, written) = watch::channel(0);
        let hurry = Arc::new(AtomicBool::new(false));
        let thread = thread::Thread::new(
            writer,
            directory.to_owned(),
            head_sender,
            available_sender,
            written_sender,
            hurry.clone(),
        );
        let join = std::thread::Builder::new().name("audit".to_owned()).spawn(move || thread.run(entries))?;
        let log = Self {
            queue,
            hurry,
            thread: join.thread().clone(),
            head,
            available,
            taken: AtomicU64::new(0),
            written,
            directory: directory.to_owned(),
            tail: tail::Tail::new(directory),
            redactor: Redactor::default(),
        };
        Ok((log, opened, join))
    }

    /// Records an event and waits until it is on disk.
    pub(crate) async fn record(&self, event: Event) -> Result<Record, Unavailable> {
        let (written, answer) = oneshot::channel();
        self.send(event, Some(written)).await?;
        answer.await.map_err(|_| Unavailable)?
    }

    /// Records an event without waiting for the disk. Waits only for room in the queue.
    pub(crate) async fn enqueue(&self, event: Event) -> Result<(), Unavailable> {
        self.send(event, None).await
    }

    async fn send(
        &self,
        mut event: Event,
        written: Option<oneshot::Sender<Result<Record, Unavailable>>>,
    ) -> Result<(), Unavailable> {
        event.redact(&self.redactor);
        let waits = written.is_some();
        self.queue.send(Entry { event, written }).await.map_err(|_| Unavailable)?;
        self.taken.fetch_add(1, Ordering::AcqRel);
        if waits {
            self.hurry();
        }
        Ok(())
    }

    /// Has the thread write what it has, instead of waiting for more.
    fn hurry(&self) {
        self.hurry.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits until everything that was taken before is on disk, or until the disk fails: whoever has had an answer
    /// finds its records.
    pub(crate) async fn settle(&self) {
        let taken = self.taken.load(Ordering::Acquire);
        let (mut written, mut available) = (self.written.clone(), self.available.clone());
        self.hurry();
        tokio::select! {
            _ = written.wait_for(|written| *written >= taken) => {}
            _ = available.wait_for(|available| !available) => {}
        }
    }

    /// Whether events reach the disk.
    pub(crate) fn is_available(&self) -> bool {
        *self.available.borrow()
    }

    /// Changes of [`Self::is_available`].
    pub(crate) fn availability(&self) -> watch::Receiver<bool> {
        self.available.clone()
    }

    /// The last durable record.
    pub(crate) fn head(&self) -> Option<Head> {
        *self.head.borrow()
    }

    /// The same as it moves.
    pub(crate) fn heads(&self) -> watch::Receiver<Option<Head>> {
        self.head.clone()
    }

    /// Reads the log after `sequence`; with `follow` it goes on for ever.
    pub(crate) fn read_after(&self, sequence: u64, follow: bool) -> Follow {
        Follow::new(&self.directory, self.tail.clone(), sequence, follow, self.head.clone())
    }

    /// Where the segments are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Hides secrets in what is shown to reviewers and kept beside the log.
    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }
}

#[cfg(test)]
mod tests;
