//! Owns the index, in one thread: builds it, and follows the log with it.
//!
//! A new index is filled beside the old one, without durability on the way, and replaces it when it is complete. After that, new
//! records are added in batches: those that no query waits for are collected for a moment.

#![expect(clippy::disallowed_methods, reason = "the daemon's own index")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use audit::{Head, Reader};
use refusal::chain;
use tokio::sync::watch;

use super::fill::Filler;
use super::row::Row;
use super::schema::{self, Through};
use super::state::{IndexError, Shared, State};
use crate::tail::{Positioned, Tail};

/// Most records of one transaction.
const BATCH: usize = 4_096;
/// Batches that are read ahead.
const AHEAD: usize = 2;
/// Distance in records from which on a rebuild is faster than catching up.
const FAR: u64 = 100_000;
/// Time that records without a waiting query are collected.
const LINGER: Duration = Duration::from_millis(50);
/// Time between attempts when neither the index nor the log can be read.
const RETRY: Duration = Duration::from_secs(10);
/// Time between lines in the daemon's log during a build.
const SAY: Duration = Duration::from_secs(1);
/// The thread's nice value: calls go first.
const NICE: i32 = 10;

pub(super) struct Thread {
    pub(super) directory: PathBuf,
    pub(super) path: PathBuf,
    pub(super) head: watch::Receiver<Option<Head>>,
    pub(super) state: watch::Sender<State>,
    pub(super) shared: Arc<Shared>,
    pub(super) runtime: tokio::runtime::Handle,
    /// The records that the writer wrote last.
    pub(super) tail: Arc<Tail>,
}

/// The reason why a filler stops.
enum End {
    /// The log no longer has a writer.
    Log,
    /// A client requested a rebuild.
    Rebuild,
}

impl Thread {
    pub(super) fn run(mut self) {
        // On Linux this affects only the calling thread.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut anew = false;
        loop {
            match self.open(anew).and_then(|filler| self.follow(filler)) {
                Ok(End::Log) => return,
                Ok(End::Rebuild) => anew = true,
                Err(error) => {
                    tracing::error!(error = %chain(&error), "the audit log's index failed and is being rebuilt");
                    // Rebuilds at once; if that does not help, again later.
                    if anew {
                        self.state.send_replace(State::Failed);
                        if !self.rest(RETRY) {
                            return;
                        }
                    }
                    anew = true;
                }
            }
        }
    }

    /// Opens the existing index, if it is one of this log, or builds a new one.
    fn open(&mut self, anew: bool) -> Result<Filler, IndexError> {
        self.shared.rebuild.store(false, Ordering::Release);
        if !anew {
            match self.current() {
                Ok(Some(filler)) if !self.is_far(&filler) => return Ok(filler),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the audit log's index cannot be used and is being rebuilt");
                }
            }
        }
        self.build()?;
        self.current()?.ok_or(IndexError::Inconsistent)
    }

    /// Returns true if an index lags so far that a rebuild is faster than catching up: adding to an index takes several times as
    /// long.
    fn is_far(&self, filler: &Filler) -> bool {
        let head = self.head.borrow().map_or(0, |head| head.sequence);
        let through = filler.through().map_or(0, |through| through.sequence);
        head.saturating_sub(through) > FAR.max(through)
    }

    fn current(&self) -> Result<Option<Filler>, IndexError> {
        let Some(connection) = schema::open(&self.path)? else { return Ok(None) };
        let filler = Filler::new(connection)?;
        let Some(through) = filler.through() else { return Ok(Some(filler)) };
        let mut reader = Reader::from(&self.directory, through.sequence.saturating_sub(1));
        let there = reader.next_with_line()?.map(|(record, _)| record.head());
        let same = there.is_some_and(|head| Through { sequence: head.sequence, hash: head.hash } == through);
        Ok(same.then_some(filler))
    }

    /// Builds a new index of the log's current records.
    fn build(&mut self) -> Result<(), IndexError> {
        let head = self.head.borrow_and_update().map_or(0, |head| head.sequence);
        self.state.send_replace(State::Building(0));
        let aside = self.path.with_extension("db.new");
        remove(&aside)?;
        let mut filler = Filler::new(schema::create(&aside)?)?;
        let (began, mut said) = (Instant::now(), Instant::now());
        read_ahead(&self.directory, head, |rows| {
            let Some(last) = fill(&mut filler, &rows)? else { return Ok(()) };
            self.state.send_replace(State::Building(last));
            if said.elapsed() >= SAY {
                said = Instant::now();
                tracing::info!(records = last, of = head, "making the index of the audit log");
            }
            Ok(())
        })?;
        filler.complete()?;
        File::open(&aside)?.sync_all()?;
        // The old file is removed first, so that its journal is never taken for the new one's.
        for old in ["db", "db-wal", "db-shm"] {
            remove(&self.path.with_extension(old))?;
        }
        std::fs::rename(&aside, &self.path)?;
        File::open(&self.directory)?.sync_all()?;
        self.shared.made.fetch_add(1, Ordering::AcqRel);
        if head > 0 {
            let took = began.elapsed();
            tracing::info!(records = head, ?took, "the index of the audit log was built");
        }
        Ok(())
    }

    /// Adds new records, until the log or the index ends.
    fn follow(&mut self, mut filler: Filler) -> Result<End, IndexError> {
        let through = filler.through().map_or(0, |through| through.sequence);
        let mut reader = Reader::from(&self.directory, through);
        let mut next = through.saturating_add(1);
        let mut said = Instant::now();
        loop {
            let head = self.head.borrow_and_update().map_or(0, |head| head.sequence);
            while next <= head {
                if self.shared.rebuild.load(Ordering::Acquire) {
                    return Ok(End::Rebuild);
                }
                let last = if let Some(lines) = self.tail.from(next, head, BATCH) {
                    fill_with(&mut filler, &lines)?
                } else {
                    if reader.next_sequence() != next {
                        reader = Reader::from(&self.directory, next.saturating_sub(1));
                    }
                    fill(&mut filler, &rows(&mut reader, head)?)?
                };
                // Less than the head: the log is shorter than its writer reported. The next read returns the error.
                let Some(last) = last else { break };
                next = last.saturating_add(1);
                self.state.send_replace(State::Ready(last));
                if said.elapsed() >= SAY {
                    said = Instant::now();
                    tracing::info!(records = last, of = head, "the index of the audit log catches up");
                }
            }
            self.state.send_if_modified(|state| {
                let ready = State::Ready(filler.through().map_or(0, |through| through.sequence));
                std::mem::replace(state, ready) != ready
            });
            if self.shared.rebuild.load(Ordering::Acquire) {
                return Ok(End::Rebuild);
            }
            if !self.wait() {
                return Ok(End::Log);
            }
            said = Instant::now();
        }
    }

    /// Waits for work. Returns false when there will never be any.
    fn wait(&mut self) -> bool {
        let (head, wake) = (&mut self.head, &self.shared.wake);
        let goes_on = self.runtime.block_on(async {
            tokio::select! {
                () = wake.notified() => true,
                changed = head.changed() => changed.is_ok(),
            }
        });
        // Collects records, unless a query waits. The runtime's clock may be gone before this thread, so it is not used.
        let until = Instant::now() + LINGER;
        while goes_on && !self.shared.hurry.swap(false, Ordering::AcqRel) && Instant::now() < until {
            std::thread::sleep(LINGER / 10);
        }
        goes_on
    }

    /// Waits for so long. Returns false if the log has ended.
    fn rest(&mut self, time: Duration) -> bool {
        std::thread::sleep(time);
        self.head.has_changed().is_ok()
    }
}

/// Adds a batch and commits it. Returns its last record.
fn fill(filler: &mut Filler, rows: &[Row]) -> Result<Option<u64>, IndexError> {
    rows.iter().try_for_each(|row| filler.add(row))?;
    filler.commit()?;
    Ok(rows.last().map(|row| row.sequence))
}

/// Reads the next batch, up to `head`.
fn rows(reader: &mut Reader, head: u64) -> Result<Vec<Row>, IndexError> {
    let mut rows = Vec::new();
    while rows.len() < BATCH && reader.next_sequence() <= head {
        let Some((line, position)) = reader.next_with_position()? else { break };
        rows.push(Row::of(line, position)?);
    }
    Ok(rows)
}

/// Passes all batches up to `head` to `take`, in order. A separate thread reads and verifies them meanwhile.
fn read_ahead(
    directory: &Path,
    head: u64,
    mut take: impl FnMut(Vec<Row>) -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let mut reader = Reader::from(directory, 0);
    std::thread::scope(|scope| {
        let (sender, batches) = std::sync::mpsc::sync_channel(AHEAD);
        let reads = move || {
            while reader.next_sequence() <= head {
                let batch = rows(&mut reader, head);
                let is_last = batch.as_ref().map_or(true, Vec::is_empty);
                // The receiver is gone if the other side failed.
                if sender.send(batch).is_err() || is_last {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("audit-index".to_owned()).spawn_scoped(scope, reads)?;
        batches.into_iter().try_for_each(|batch| take(batch?))
    })
}

/// Adds records from memory, as [`fill`] does.
fn fill_with(filler: &mut Filler, lines: &[Positioned]) -> Result<Option<u64>, IndexError> {
    let rows: Vec<_> =
        lines.iter().map(|Positioned { line, position }| Row::with(&line.record, *position)).collect();
    fill(filler, &rows)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
