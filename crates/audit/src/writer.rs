//! The only writer of a log. It records several events with one write and one fdatasync.
//!
//! ```text
//!  open ──► good ──append fails──► poisoned ──drop, open again──► good
//! ```
//!
//! Memory changes only after the disk has confirmed. After an error the content of the disk is unknown, so a poisoned writer refuses
//! everything. Opening the log again determines the content (`recovery.rs`).

use std::io;
use std::time::Duration;

use timestamp::Timestamp;

use crate::bound::encode_bounded;
use crate::canonical::{Header, MAX_LINE};
use crate::event::Event;
use crate::hash::LogId;
use crate::ledger::{self, Ledger};
use crate::lines::retry;
use crate::record::{Head, Record};
use crate::segment::SegmentName;
use crate::storage::{SegmentFile, Storage};

/// Most bytes that are written before they are made durable. Recovery writes as many again.
pub(crate) const MAX_BATCH: usize = 64 * MAX_LINE;

/// Limits at which a new segment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Size at which a segment gets no further batch, in bytes.
    pub segment_bytes: u64,
    /// Age of its first record at which a segment gets no further batch. `None` for no limit.
    pub segment_age: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { segment_bytes: 64 * 1024 * 1024, segment_age: None }
    }
}

/// Reason why events were not recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The disk failed while `doing`. The writer is poisoned from then on.
    #[error("the audit log failed while {doing}")]
    Io {
        /// Description of the step that failed.
        doing: &'static str,
        /// Error of the disk.
        #[source]
        source: io::Error,
    },
    /// An earlier append failed. The log must be opened again.
    #[error("the audit log failed earlier and must be opened again: {0}")]
    Poisoned(String),
    /// The event could not be encoded, and no event was written.
    #[error("cannot encode an audit event")]
    Encode(#[source] serde_json::Error),
}

/// Events that were not recorded, in their order, and the reason.
#[derive(Debug)]
pub struct Unrecorded {
    pub error: AppendError,
    /// All events of the call. Events that exceeded the size of a record may have been shortened already.
    pub events: Vec<Event>,
}

/// The segment that is being written, and the length of its durable part.
pub(crate) struct Tail {
    pub(crate) file: Box<dyn SegmentFile>,
    pub(crate) length: u64,
    /// Time of its first record.
    pub(crate) began: Option<Timestamp>,
}

impl Tail {
    fn is_full(&self, limits: &Limits, now: Timestamp) -> bool {
        let old = |(began, age): (Timestamp, Duration)| began.until(now) >= age;
        self.length >= limits.segment_bytes.max(1) || self.began.zip(limits.segment_age).is_some_and(old)
    }
}

/// The only writer of a log. It holds the directory's lock while it exists.
pub struct Writer {
    storage: Box<dyn Storage>,
    limits: Limits,
    log: LogId,
    /// State of the log after the last acknowledged record.
    ledger: Ledger,
    tail: Option<Tail>,
    poison: Option<String>,
    /// The last batch, whose memory is reused.
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

    /// Returns the last acknowledged record, or `None` if the log is empty.
    pub fn head(&self) -> Option<Head> {
        self.ledger.chain.head()
    }

    pub fn log_id(&self) -> LogId {
        self.log
    }

    /// Returns the lines of the records that were appended last, as they are on disk, each with its newline.
    pub fn last_lines(&self) -> &[u8] {
        &self.lines
    }

    /// Returns the position in their segment where these lines begin, in bytes. All of them are in the same segment.
    pub fn last_position(&self) -> u64 {
        let end = self.tail.as_ref().map_or(0, |tail| tail.length);
        end.saturating_sub(self.lines.len() as u64)
    }

    /// Returns true if an append failed, so that no event can be recorded until the log is opened again.
    pub fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Records one event durably.
    pub fn append(&mut self, event: &Event) -> Result<Record, AppendError> {
        let mut records = self.append_batch(std::slice::from_ref(event))?;
        // One event makes one record. The error only avoids a panic.
        records.pop().ok_or_else(|| AppendError::Poisoned("no record was made".to_owned()))
    }

    /// Records all `events` in their order, with one write and one fdatasync for every 4 MiB.
    ///
    /// When it returns records, they are on disk. After an error, the caller must treat none as recorded.
    ///
    /// It blocks on the disk, so it must not be called from an async task.
    pub fn append_batch(&mut self, events: &[Event]) -> Result<Vec<Record>, AppendError> {
        self.append_all(events.to_vec()).map_err(|unrecorded| unrecorded.error)
    }

    /// Records events like [`Writer::append_batch`], but takes ownership of them. An error returns all of them.
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
            let header = Header { log: self.log, sequence, time: Timestamp::now(), previous };
            let hash = match encode_bounded(lines, &header, &mut event) {
                Ok(hash) => hash,
                Err(error) => {
                    let before = records.into_iter().map(|record| record.event);
                    let events = before.chain([event]).chain(events).collect();
                    return Err(Unrecorded { error: AppendError::Encode(error), events });
                }
            };
            let record = Record { log: self.log, sequence, time: header.time, previous, hash, event };
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
    /// Begins the next segment, whose first record will be `first`, and stores the ledger before it for the next opening.
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
