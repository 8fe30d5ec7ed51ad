//! The thread that owns the index: makes it, and follows the log with it.
//!
//! A new index is filled aside, with nothing that would make it durable step by step, and takes the old one's place
//! when it is whole. After that, what comes is added in batches: those that nobody asks for wait for company.

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
use crate::tail::{Placed, Tail};

/// Records of one transaction.
const BATCH: usize = 4_096;
/// Batches that are read ahead.
const AHEAD: usize = 2;
/// Records from which on a new index is made sooner than an old one is brought up.
const FAR: u64 = 100_000;
/// How long records that no query waits for may wait for company.
const LINGER: Duration = Duration::from_millis(50);
/// Between attempts when neither the index nor the log can be read.
const RETRY: Duration = Duration::from_secs(10);
/// Between lines in the daemon's log while the index is made.
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
    /// What the writer wrote last.
    pub(super) tail: Arc<Tail>,
}

/// Why a filler is followed no further.
enum End {
    /// The log has no writer any more.
    Log,
    /// Somebody wants a new index.
    Rebuild,
}

impl Thread {
    pub(super) fn run(mut self) {
        // On Linux this is the calling thread's.
        let _ = rustix::process::setpriority_process(None, NICE);
        let mut anew = false;
        loop {
            match self.open(anew).and_then(|filler| self.follow(filler)) {
                Ok(End::Log) => return,
                Ok(End::Rebuild) => anew = true,
                Err(error) => {
                    tracing::error!(error = %chain(&error), "the audit log's index failed, and is made anew");
                    // Once right away; when that does not help, later again.
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

    /// The index that is there, when it is one of this log, or a new one.
    fn open(&mut self, anew: bool) -> Result<Filler, IndexError> {
        self.shared.rebuild.store(false, Ordering::Release);
        if !anew {
            match self.current() {
                Ok(Some(filler)) if !self.is_far(&filler) => return Ok(filler),
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(error = %chain(&error), "the audit log's index cannot be used, and is made anew");
                }
            }
        }
        self.build()?;
        self.current()?.ok_or(IndexError::Inconsistent)
    }

    /// Whether an index is so far behind that another is made sooner than this one is brought up: adding to one takes
    /// several times as long.
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

    /// Makes a new index of what the log has now.
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
        // The old one goes first, so that its journal is never taken for the new one's.
        for old in ["db", "db-wal", "db-shm"] {
            remove(&self.path.with_extension(old))?;
        }
        std::fs::rename(&aside, &self.path)?;
        File::open(&self.directory)?.sync_all()?;
        self.shared.made.fetch_add(1, Ordering::AcqRel);
        if head > 0 {
            let took = began.elapsed();
            tracing::info!(records = head, ?took, "the index of the audit log was made");
        }
        Ok(())
    }

    /// Adds what comes, until the log or the index ends.
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
                // Less than the head: the log is shorter than its writer said. The next look tells.
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

    /// Until there is something to do. False: there never will be.
    fn wait(&mut self) -> bool {
        let (head, wake) = (&mut self.head, &self.shared.wake);
        let goes_on = self.runtime.block_on(async {
            tokio::select! {
                () = wake.notified() => true,
                changed = head.changed() => changed.is_ok(),
            }
        });
        // For company, unless a query waits. Without the runtime's clock, which may be gone before this thread.
        let until = Instant::now() + LINGER;
        while goes_on && !self.shared.hurry.swap(false, Ordering::AcqRel) && Instant::now() < until {
            std::thread::sleep(LINGER / 10);
        }
        goes_on
    }

    /// Waits for so long. False: there is no log any more.
    fn rest(&mut self, time: Duration) -> bool {
        std::thread::sleep(time);
        self.head.has_changed().is_ok()
    }
}

/// Adds a batch and commits it: the last record that it has.
fn fill(filler: &mut Filler, rows: &[Row]) -> Result<Option<u64>, IndexError> {
    rows.iter().try_for_each(|row| filler.add(row))?;
    filler.commit()?;
    Ok(rows.last().map(|row| row.sequence))
}

/// The next batch, up to `head`.
fn rows(reader: &mut Reader, head: u64) -> Result<Vec<Row>, IndexError> {
    let mut rows = Vec::new();
    while rows.len() < BATCH && reader.next_sequence() <= head {
        let Some((line, place)) = reader.next_placed()? else { break };
        rows.push(Row::of(line, place)?);
    }
    Ok(rows)
}

/// Has all batches up to `head` taken, in order. They are read and proved by a thread of their own meanwhile.
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
                // Nobody takes it any more when the other side failed.
                if sender.send(batch).is_err() || is_last {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("audit-index".to_owned()).spawn_scoped(scope, reads)?;
        batches.into_iter().try_for_each(|batch| take(batch?))
    })
}

/// The same with records that were at hand.
fn fill_with(filler: &mut Filler, lines: &[Placed]) -> Result<Option<u64>, IndexError> {
    let rows: Vec<_> = lines.iter().map(|Placed { line, place }| Row::with(&line.record, *place)).collect();
    fill(filler, &rows)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
