//! Runs the audit log in the daemon: one thread owns the writer, and all others send it events.
//!
//! ```text
//!  record(event) ──► bounded queue ──► writer thread ──one write, one fdatasync──► log
//!       ▲                                   │
//!       └──── the record, once durable ─────┴──► tail, head (subscribers read the log up to it)
//! ```
//!
//! Invariants:
//! * an accepted event is written, in order, sooner or later: while the disk fails it waits, and the writer tries to open the log
//!   again every second;
//! * meanwhile [`AuditLog::check`] refuses, so that no call begins without a log. It also refuses while the disk has space for
//!   nothing but the ends of calls under way;
//! * a full queue makes callers wait; no event is dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use audit::{AppendError, Event, Head, Limits, OpenError, Opened, Removal, RotateError, Writer};
use operations::Reason;
use prometheus_client::metrics::histogram::Histogram;
use redact::Redactor;
use refusal::Refusal;
use tokio::sync::{Mutex, mpsc, oneshot, watch};

use crate::follow::Follow;
use crate::index::Index;
use crate::tail::{Line, Tail};
use crate::thread::{self, Entry, Job, Own, Signed, Signing, Told, Unavailable};

/// Longest time that events wait for a failing disk at an orderly stop.
pub const LAST_WAIT: std::time::Duration = thread::LAST_WAIT;

/// Time after which a failure for lack of space is known as a full disk.
const NOTICED: std::time::Duration = std::time::Duration::from_secs(3);

/// Most events that may wait for the writer.
const QUEUE: usize = 4_096;

/// Settings for writing and signing the log.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Limits at which a segment is full.
    pub limits: Limits,
    /// The file of the key that signs checkpoints, and the number of records after which one is due. `None`: the log is not signed.
    pub signing: Option<(PathBuf, u64)>,
}

/// The reason why the log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Key(#[from] RotateError),
    #[error(transparent)]
    Sign(#[from] AppendError),
    #[error("cannot start the audit log's thread")]
    Thread(#[from] std::io::Error),
}

/// A handle on the log; cheap to share.
pub struct AuditLog {
    queue: mpsc::Sender<Job>,
    head: watch::Receiver<Option<Head>>,
    available: watch::Receiver<bool>,
    /// True while the state disk has no space for further calls.
    full: watch::Receiver<bool>,
    /// Number of events that the queue has accepted.
    taken: AtomicU64,
    /// Number of these events that are on disk.
    written: watch::Receiver<u64>,
    checkpoints: watch::Receiver<Option<Signed>>,
    /// Time in which batches became durable.
    writes: Histogram,
    /// Held while segments are compressed or removed, and while all of them are read.
    tidying: Mutex<()>,
    directory: PathBuf,
    /// The last records, for all subscribers.
    tail: Arc<Tail>,
    redactor: Redactor,
    /// Set, with a wake-up of the thread, when a caller waits for queued events.
    hurry: Arc<AtomicBool>,
    thread: std::thread::Thread,
}

impl AuditLog {
    /// Opens the log in `directory` and starts its writer. The thread ends when the last handle is dropped; join it to know that
    /// everything is on disk.
    pub fn open(
        directory: &Path,
        settings: Settings,
    ) -> Result<(Self, Opened, std::thread::JoinHandle<()>), StartError> {
        let Settings { limits, signing } = settings;
        let (mut writer, opened) = Writer::open_with(directory, limits)?;
        if let Some(repair) = &opened.repaired {
            let (bytes, segment) = (repair.bytes, &repair.segment);
            tracing::warn!(bytes, segment, "the audit log's torn tail was cut and recorded");
        }
        let (latest, checkpoints) = watch::channel(None);
        let signing = match signing {
            Some((key, every)) => {
                let signer = writer.signer(&key)?;
                tracing::info!(key = %signer.verifier_key(), "the audit log's checkpoints are signed with this key");
                // Signs the records of a repair, and those that an earlier daemon could not sign.
                let key = signer.verifier_key().to_string();
                latest.send_replace(writer.checkpoint(&signer)?.map(|checkpoint| (checkpoint, key)));
                Some(Signing { signer, every, latest })
            }
            None => None,
        };
        let (queue, entries) = mpsc::channel(QUEUE);
        let (head_sender, head) = watch::channel(writer.head());
        let (available_sender, available) = watch::channel(true);
        let (written_sender, written) = watch::channel(0);
        let (tail, latency) = (Arc::new(Tail::default()), metrics::latency());
        let told = Told {
            head: head_sender,
            available: available_sender,
            written: written_sender,
            tail: tail.clone(),
            writes: latency.clone(),
        };
        let hurry = Arc::new(AtomicBool::new(false));
        let thread = thread::Thread::new(writer, directory.to_owned(), limits, signing, told, hurry.clone());
        let join = std::thread::Builder::new().name("audit".to_owned()).spawn(move || thread.run(entries))?;
        let log = Self {
            queue,
            hurry,
            thread: join.thread().clone(),
            head,
            available,
            full: watch::Sender::new(false).subscribe(),
            taken: AtomicU64::new(0),
            written,
            checkpoints,
            writes: latency,
            tidying: Mutex::new(()),
            directory: directory.to_owned(),
            tail,
            redactor: Redactor::default(),
        };
        Ok((log, opened, join))
    }

    /// Returns the same log, on a disk that may be `full`.
    #[must_use]
    pub fn on(self, full: watch::Receiver<bool>) -> Self {
        Self { full, ..self }
    }

    /// Records an event and waits until it is on disk.
    pub async fn record(&self, event: Event) -> Result<Arc<Line>, Unavailable> {
        let (written, answer) = oneshot::channel();
        self.send(event, Some(written)).await?;
        answer.await.map_err(|_| Unavailable)?
    }

    /// Records the removal of data that frees space on the disk.
    ///
    /// If the disk is full, the event is accepted and written once there is space, and the caller need not wait before it frees
    /// some.
    pub async fn record_removal(&self, event: Event) -> Result<(), Unavailable> {
        let is_full = || {
            let mut full = self.full.clone();
            async move { full.wait_for(|full| *full).await.is_ok() }
        };
        let (written, answer) = oneshot::channel();
        self.send(event, Some(written)).await?;
        let recorded = tokio::select! {
            answer = answer => answer.map_err(|_| Unavailable)?.map(drop),
            true = is_full() => return Ok(()),
        };
        // The log noticed the lack of space first. It has accepted the event all the same.
        if recorded.is_err() && tokio::time::timeout(NOTICED, is_full()).await.is_ok_and(|full| full) {
            return Ok(());
        }
        recorded
    }

    /// Records an event without waiting for the disk. Waits only for space in the queue.
    pub async fn enqueue(&self, event: Event) -> Result<(), Unavailable> {
        self.send(event, None).await
    }

    async fn send(
        &self,
        mut event: Event,
        written: Option<oneshot::Sender<Result<Arc<Line>, Unavailable>>>,
    ) -> Result<(), Unavailable> {
        event.redact(&self.redactor);
        let waits = written.is_some();
        self.queue.send(Job::Record(Entry { event, written })).await.map_err(|_| Unavailable)?;
        self.taken.fetch_add(1, Ordering::AcqRel);
        if waits {
            self.hurry();
        }
        Ok(())
    }

    /// Signs everything up to here. Returns the last checkpoint with its key: an earlier one if the log has not grown since.
    pub async fn checkpoint(&self) -> Result<Signed, Unavailable> {
        self.own(Own::Checkpoint).await?;
        self.checkpoints.borrow().clone().ok_or(Unavailable)
    }

    /// Changes to a new key, for which the old one vouches. Returns the first checkpoint that the new key signed.
    pub async fn rotate(&self) -> Result<Signed, Unavailable> {
        self.own(Own::Rotate).await?;
        self.checkpoint().await
    }

    /// Records the removal of the oldest segments.
    pub(crate) async fn remove(&self, removal: Removal) -> Result<(), Unavailable> {
        self.own(Own::Remove(Box::new(removal))).await
    }

    async fn own(&self, own: Own) -> Result<(), Unavailable> {
        if !self.is_available() {
            return Err(Unavailable);
        }
        let (done, answer) = oneshot::channel();
        self.queue.send(Job::Own(own, done)).await.map_err(|_| Unavailable)?;
        self.hurry();
        answer.await.map_err(|_| Unavailable)?
    }

    pub fn checkpoints(&self) -> watch::Receiver<Option<Signed>> {
        self.checkpoints.clone()
    }

    /// Forgets removed records up to this one, so that no subscriber gets them.
    pub(crate) fn forget(&self, last: u64) {
        self.tail.forget(last);
    }

    /// Keeps all segments from being compressed or removed while the guard is held.
    pub async fn hold_segments(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.tidying.lock().await
    }

    /// Has the thread write the queued events now.
    fn hurry(&self) {
        self.hurry.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits until all accepted events are on disk, or until the disk fails. A client that has its answer then finds its records.
    pub async fn settle(&self) {
        let taken = self.taken.load(Ordering::Acquire);
        let (mut written, mut available) = (self.written.clone(), self.available.clone());
        self.hurry();
        tokio::select! {
            _ = written.wait_for(|written| *written >= taken) => {}
            _ = available.wait_for(|available| !available) => {}
        }
    }

    /// Returns the histogram of the time in which batches became durable, seconds.
    pub fn writes(&self) -> Histogram {
        self.writes.clone()
    }

    /// Returns the number of accepted events that are not durable yet.
    pub fn lag(&self) -> u64 {
        self.taken.load(Ordering::Acquire).saturating_sub(*self.written.borrow())
    }

    /// Returns true if events reach the disk.
    pub fn is_available(&self) -> bool {
        *self.available.borrow()
    }

    /// Returns an error if no new call may begin.
    pub fn check(&self) -> Result<(), Refusal> {
        if !self.is_available() {
            return Err(Unavailable.into());
        }
        if *self.full.borrow() {
            return Err(Refusal::new(
                Reason::AuditUnavailable,
                "the daemon's state disk is full, so no call or run can start until the operator frees \
                 space. Runs and workspaces can still be listed, stopped and deleted",
            ));
        }
        Ok(())
    }

    /// Waits until [`Self::check`] no longer has the result `admits`.
    pub async fn changed_from(&self, admits: bool) {
        let (mut available, mut full) = (self.available.clone(), self.full.clone());
        while (*available.borrow_and_update() && !*full.borrow_and_update()) == admits {
            tokio::select! {
                Ok(()) = available.changed() => {}
                Ok(()) = full.changed() => {}
                else => std::future::pending().await,
            }
        }
    }

    /// Returns the last durable record.
    pub fn head(&self) -> Option<Head> {
        *self.head.borrow()
    }

    /// Reads the log after `sequence`; with `follow`, forever.
    pub fn read_after(&self, sequence: u64, follow: bool) -> Follow {
        Follow::new(&self.directory, self.tail.clone(), sequence, follow, self.head.clone())
    }

    /// Starts an index of the log, which follows it.
    pub fn index(&self) -> std::io::Result<Index> {
        Index::start(&self.directory, self.head.clone(), self.tail.clone())
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the redactor, which hides secrets in reviews and in data beside the log.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
