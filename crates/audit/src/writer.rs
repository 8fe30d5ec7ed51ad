//! The one writer of a log: many events in, one write and one fdatasync, as many records out.
//!
//! ```text
//!  open ──► good ──append fails──► poisoned ──drop, open again──► good
//! ```
//!
//! Memory changes only after the disk has confirmed. After any error nobody knows what is on disk, so a poisoned
//! writer refuses everything; opening the log again finds out (`recovery.rs`).

use std::io;
use std::time::Duration;

use timestamp::Timestamp;

use crate::bound::encode_bounded;
use crate::canonical::{MAX_LINE, Place};
use crate::event::Event;
use crate::hash::LogId;
use crate::ledger::{self, Ledger};
use crate::lines::retry;
use crate::record::{Head, Record};
use crate::segment::SegmentName;
use crate::storage::{SegmentFile, Storage};

/// The most that is written without being made durable, in bytes. Recovery writes that much again.
pub(crate) const MAX_BATCH: usize = 64 * MAX_LINE;

/// When a new segment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A segment that has reached this many bytes gets no further batch.
    pub segment_bytes: u64,
    /// A segment whose first record is older than this gets no further batch. `None`: however old it is.
    pub segment_age: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segment_bytes: 64 * 1024 * 1024, segment_age: None }
    }
}

/// Why events were not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The disk failed while `doing`; the writer is poisoned from here on.
    #[error("the audit log failed while {doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the disk said.
        #[source]
        source: io::Error,
    },
    /// An earlier append failed; the log must be opened again.
    #[error("the audit log failed earlier and must be opened again: {0}")]
    Poisoned(String),
    /// The event could not be encoded; nothing was written.
    #[error("cannot encode an audit event")]
    Encode(#[source] serde_json::Error),
}

/// Events that were not recorded, in their order, and why.
#[derive(Debug)]
pub struct Unrecorded {
    pub error: AppendError,
    /// All that were to be recorded; those over the size of a record have been cut already.
    pub events: Vec<Event>,
}

/// The segment that is being written, and how much of it is on disk for certain.
pub(crate) struct Tail {
    pub(crate) file: Box<dyn SegmentFile>,
    pub(crate) length: u64,
    /// The time of its first record.
    pub(crate) began: Option<Timestamp>,
}

impl Tail {
    fn is_full(&self, limits: &Limits, now: Timestamp) -> bool {
        let old = |(began, age): (Timestamp, Duration)| began.until(now) >= age;
        self.length >= limits.segment_bytes.max(1) || self.began.zip(limits.segment_age).is_some_and(old)
    }
}

/// The only one who appends to a log. It holds the directory's lock while it lives.
pub struct Writer {
    storage: Box<dyn Storage>,
    limits: Limits,
    log: LogId,
    /// Everything up to the last acknowledged record.
    ledger: Ledger,
    tail: Option<Tail>,
    poison: Option<String>,
    /// The last batch; kept for its memory.
    lines: Vec<u8>,
}

impl Writer {
    pub(crate) fn resume(
        storage: Box<dyn Storage>,
        limits: Limits,
        log: LogId,
        ledger: Ledger,
        tail: Option<Tail>,
    ) -> Self {
        Self { storage, limits, log, ledger, tail, poison: None, lines: Vec::new() }
    }

    /// The last acknowledged record. `None`: the log is empty.
    pub fn head(&self) -> Option<Head> {
        self.ledger.chain.head()
    }

    pub fn log_id(&self) -> LogId {
        self.log
    }

    /// The lines of the records that were appended last, as they are on disk, each with its line feed.
    pub fn last_lines(&self) -> &[u8] {
        &self.lines
    }

    /// At which byte of their segment, which is the same for all of them, these lines begin.
    pub fn last_place(&self) -> u64 {
        let end = self.tail.as_ref().map_or(0, |tail| tail.length);
        end.saturating_sub(self.lines.len() as u64)
    }

    /// Whether an append failed, so that nothing can be recorded until the log is opened again.
    pub fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Records one event durably.
    pub fn append(&mut self, event: &Event) -> Result<Record, AppendError> {
        let mut records = self.append_batch(std::slice::from_ref(event))?;
        // One event makes one record; the error only spares a panic.
        records.pop().ok_or_else(|| AppendError::Poisoned("no record was made".to_owned()))
    }

    /// Records all of `events`, in their order, with one write and one fdatasync. When it returns records, they are
    /// on disk; when it fails, treat none as recorded. (Batches over 4 MiB take one of each for every 4 MiB.)
    ///
    /// Blocks on the disk: not to be called from an async task.
    pub fn append_batch(&mut self, events: &[Event]) -> Result<Vec<Record>, AppendError> {
        self.append_all(events.to_vec()).map_err(|unrecorded| unrecorded.error)
    }

    /// As [`Writer::append_batch`], for who has no further use for the events. What was not recorded comes back.
    pub fn append_all(&mut self, events: Vec<Event>) -> Result<Vec<Record>, Unrecorded> {
        if let Some(cause) = &self.poison {
            return Err(Unrecorded { error: AppendError::Poisoned(cause.clone()), events });
        }
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        let records = self.encode(&mut lines, events)?;
        if let Some(first) = records.first() {
            if let Err(error) = self.write(&lines, first) {
                self.poison = Some(reason(&error));
                return Err(Unrecorded {
                    error,
                    events: records.into_iter().map(|record| record.event).collect(),
                });
            }
            for record in &records {
                self.ledger.wrote(self.log, record.head(), &record.event);
            }
        }
        self.lines = lines;
        Ok(records)
    }

    fn encode(&self, lines: &mut Vec<u8>, events: Vec<Event>) -> Result<Vec<Record>, Unrecorded> {
        let mut records: Vec<Record> = Vec::with_capacity(events.len());
        let mut head = self.head();
        let mut events = events.into_iter();
        while let Some(mut event) = events.next() {
            let (sequence, previous) = match head {
                Some(head) => (head.sequence.saturating_add(1), head.hash),
                None => (1, self.log.genesis()),
            };
            let place = Place { log: self.log, sequence, time: Timestamp::now(), previous };
            let hash = match encode_bounded(lines, &place, &mut event) {
                Ok(hash) => hash,
                Err(error) => {
                    let before = records.into_iter().map(|record| record.event);
                    let events = before.chain([event]).chain(events).collect();
                    return Err(Unrecorded { error: AppendError::Encode(error), events });
                }
            };
            let record = Record { log: self.log, sequence, time: place.time, previous, hash, event };
            head = Some(record.head());
            records.push(record);
        }
        Ok(records)
    }

    fn write(&mut self, lines: &[u8], first: &Record) -> Result<(), AppendError> {
        let failed = |doing| move |source| AppendError::Io { doing, source };
        if self.tail.as_ref().is_none_or(|tail| tail.is_full(&self.limits, first.time)) {
            self.begin(first.sequence).map_err(failed("beginning a segment"))?;
        }
        let Some(tail) = &mut self.tail else { return Ok(()) };
        tail.began.get_or_insert(first.time);
        for chunk in lines.chunks(MAX_BATCH) {
            write_all(tail.file.as_mut(), chunk, tail.length).map_err(failed("writing"))?;
            tail.file.sync().map_err(failed("making records durable"))?;
            tail.length += chunk.len() as u64;
        }
        Ok(())
    }
}

impl Writer {
    /// The next segment, whose first record will be `first`; the ledger after it is kept for the next opening.
    fn begin(&mut self, first: u64) -> io::Result<()> {
        let file = self.storage.create(SegmentName(first))?;
        self.storage.sync_names()?;
        if let Some(frontier) = self.ledger.frontier() {
            self.storage.store(ledger::FRONTIER, &frontier.encode())?;
        }
        self.tail = Some(Tail { file, length: 0, began: None });
        Ok(())
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { log, ledger, poison, .. } = self;
        f.debug_struct("Writer")
            .field("log", log)
            .field("head", &ledger.chain.head())
            .field("poison", poison)
            .finish_non_exhaustive()
    }
}

fn reason(error: &AppendError) -> String {
    match error {
        AppendError::Io { doing, source } => format!("{doing}: {source}"),
        other => other.to_string(),
    }
}

pub(crate) fn write_all(file: &mut dyn SegmentFile, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match retry(|| file.write_at(bytes, offset))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}

mod own;

pub use own::RotateError;

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;
