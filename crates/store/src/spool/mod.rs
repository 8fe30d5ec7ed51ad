//! The whole output of commands, stored on the host, outside of the container.
//!
//! ```text
//! worker ─► Output (one a call) ─► ledger: is there space? ─► state_dir/spool/RUN/CALL.*.pieces
//!                                     │ the oldest finished         │
//!                                     ▼ calls go first              ▼
//!                                  removed             CallStream, GetCall by offset
//! ```
//!
//! The stored part of a stream is always its beginning, without a gap: after one piece was not stored, no later one is. The file's length
//! is the number of stored bytes, also after a restart. Files are not synced, so a power failure may lose the end. A disk that is full,
//! fails or does not answer costs stored output and never a call. Followers of a call get its output anyway (`live.rs`).
//!
//! The spool contains the output as commands wrote it, including secrets. So it is sealed and accessible only to root. Clients that may use
//! the call can read it through the API.
//!
//! All disk access uses a few blocking threads at a time. So a hanging disk does not use up the threads of other work.

mod files;
mod ledger;
mod live;
mod output;
#[cfg(test)]
mod tests;
mod trouble;

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use identity::{CallId, RunId};
use parking_lot::Mutex;
use refusal::chain;
use seal::StreamKey;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub use files::Piece;
pub use live::{Live, Unkept};
pub use output::Output;

use files::Files;
use ledger::{Key, LEAST, Ledger};
use trouble::{NotKept, Trouble};

/// Number of threads that write at the same time.
const WRITERS: usize = 16;
/// Interval between two checks for space.
const TICK: Duration = Duration::from_secs(2);
/// Time until a disk that failed is used again.
const QUIET: Duration = Duration::from_secs(60);
/// Number of threads that read at the same time.
const READERS: usize = 16;

/// Limits of the spool.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Bytes that the whole spool may take.
    pub max_total: u64,
    /// Bytes that stay free on the spool's file system, or 0 to fill it.
    pub min_free: u64,
}

/// The stored output of all calls.
pub struct Spool {
    files: Files,
    ledger: Mutex<Ledger>,
    writers: Arc<Semaphore>,
    readers: Arc<Semaphore>,
    trouble: Trouble,
    /// Reason why no output is stored at the moment.
    off: Mutex<Option<String>>,
    /// Time at which its disk last failed.
    failed: Mutex<Option<Instant>>,
}

impl Spool {
    /// Opens the spool of an earlier daemon, or an empty one. Blocks on the disk.
    ///
    /// Files that belong to none of these runs and calls are removed.
    pub fn open(
        directory: PathBuf,
        bounds: Bounds,
        key: StreamKey,
        runs: &HashSet<RunId>,
        calls: &HashSet<CallId>,
    ) -> io::Result<Arc<Self>> {
        let files = Files::new(directory, bounds.min_free, key);
        let mut ledger = Ledger::new(bounds.max_total);
        for run in files.runs()? {
            let entered = if runs.contains(&run) {
                enter(&files, &mut ledger, run, calls)
            } else {
                files.remove_run(run)
            };
            if let Err(error) = entered {
                tracing::warn!(%run, error = %chain(&error), "a run's spool cannot be read or removed");
            }
        }
        let spool = Self {
            files,
            ledger: Mutex::new(ledger),
            writers: Arc::new(Semaphore::new(WRITERS)),
            readers: Arc::new(Semaphore::new(READERS)),
            trouble: Trouble::default(),
            off: Mutex::default(),
            failed: Mutex::default(),
        };
        loop {
            // A separate statement, so that the lock is not held while files are removed.
            let gone = spool.ledger.lock().shrink();
            match gone {
                Some(oldest) => spool.remove(oldest),
                None => break,
            }
        }
        spool.look();
        Ok(Arc::new(spool))
    }

    /// Checks repeatedly whether output can be stored. `record` gets each change: why not, or `None` if it can be again.
    pub async fn watch<F: Future<Output = ()>>(
        self: Arc<Self>,
        record: impl Fn(Option<String>) -> F,
        stop: CancellationToken,
    ) {
        let mut was_off = false;
        loop {
            let spool = self.clone();
            let _ = tokio::task::spawn_blocking(move || spool.look()).await;
            let why = self.off.lock().clone();
            if why.is_some() != was_off {
                was_off = why.is_some();
                record(why).await;
            }
            if stop.run_until_cancelled(tokio::time::sleep(TICK)).await.is_none() {
                return;
            }
        }
    }

    /// Checks whether there is any space. Blocks on the disk.
    fn look(&self) {
        match self.files.shortage(LEAST) {
            Ok(short) if short > self.ledger.lock().evictable() => self.is_off(&NotKept::Scarce),
            Ok(_) => self.is_on(),
            Err(error) => self.is_off(&error.into()),
        }
    }

    fn is_off(&self, why: &NotKept) {
        // One call that has written too much, or in the wrong order, does not affect the next.
        if matches!(why, NotKept::Full | NotKept::Gap) {
            return;
        }
        if !matches!(why, NotKept::Scarce) {
            *self.failed.lock() = Some(Instant::now());
        }
        let mut off = self.off.lock();
        if off.is_none() {
            let why = chain(why);
            tracing::warn!(
                why,
                "the spool is off: output of commands can be followed live but is not stored"
            );
            *off = Some(why);
        }
    }

    fn is_on(&self) {
        if self.failed.lock().is_some_and(|failed| failed.elapsed() < QUIET) {
            return;
        }
        if self.off.lock().take().is_some() {
            tracing::warn!("the spool is on again: output of commands is stored");
        }
    }

    /// Returns the destination of a call's output. It takes no disk space before the first byte.
    pub fn output(self: &Arc<Self>, run: RunId, call: CallId) -> Output {
        Output::new(self.clone(), Key { call, run })
    }

    /// Reads at most `most` bytes of a stream from `offset` on. Returns no bytes if none are stored, or no longer.
    pub async fn read(
        self: &Arc<Self>,
        run: RunId,
        call: CallId,
        stream: Stream,
        offset: u64,
        most: usize,
    ) -> io::Result<Piece> {
        let slot = self.readers.clone().acquire_owned().await;
        let spool = self.clone();
        let read = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            let key = Key { call, run };
            // Asked first: a call may end in between.
            let finished = spool.ledger.lock().is_finished(key);
            let (piece, ended) = spool.files.read(key, stream.index(), offset, most)?;
            if finished && !ended {
                spool.trouble.report_without_end(key, files::END[stream.index()]);
            }
            Ok(piece)
        });
        let read = tokio::time::timeout(output::PATIENCE, read).await;
        read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(io::Error::other)?
    }

    pub async fn remove_run(self: &Arc<Self>, run: RunId) {
        let spool = self.clone();
        let removed = tokio::task::spawn_blocking(move || {
            spool.ledger.lock().forget_run(run);
            spool.files.remove_run(run)
        });
        match removed.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%run, error = %chain(&error), "a run's spool was not removed"),
            Err(error) => tracing::warn!(%run, %error, "a run's spool was not removed"),
        }
    }

    /// Reserves space for `bytes` more of a stream that has `length`. Returns the bytes that fit, at least one.
    fn make_room(&self, key: Key, stream: usize, length: u64, bytes: u64) -> Result<u64, NotKept> {
        let (granted, gone) = self.ledger.lock().reserve(key, stream, bytes);
        for oldest in gone {
            self.remove(oldest);
        }
        if granted == 0 {
            return Err(NotKept::Full);
        }
        self.spare(seal::sealed_length(granted))
            .inspect_err(|_| self.ledger.lock().settle(key, stream, length))?;
        Ok(granted)
    }

    /// Keeps the configured space free for other programs on the same file system, which may include the audit log.
    fn spare(&self, bytes: u64) -> Result<(), NotKept> {
        let mut short = self.files.shortage(bytes)?;
        if short == 0 {
            return Ok(());
        }
        // Some file systems free space much later. So the loop only removes as much as would suffice on others.
        while short > 0 {
            let gone = self.ledger.lock().evict();
            let Some((oldest, freed)) = gone else { break };
            self.remove(oldest);
            short = short.saturating_sub(freed);
        }
        if self.files.shortage(bytes)? == 0 { Ok(()) } else { Err(NotKept::Scarce) }
    }

    fn remove(&self, key: Key) {
        tracing::debug!(call = %key.call, "the output of a call is removed to free space");
        if let Err(error) = self.files.remove(key) {
            tracing::warn!(call = %key.call, error = %chain(&error), "a call's spool was not removed");
        }
    }
}

/// Adds the files that an earlier daemon stored of a run's calls.
fn enter(files: &Files, ledger: &mut Ledger, run: RunId, calls: &HashSet<CallId>) -> io::Result<()> {
    for (call, stream, length) in files.of_run(run)? {
        let key = Key { call, run };
        if calls.contains(&call) {
            ledger.enter(key, stream, length);
        } else {
            files.remove_stream(key, stream)?;
        }
    }
    Ok(())
}

/// A stream of a command's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Returns the index of the stream in arrays of both.
    pub fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }
}
