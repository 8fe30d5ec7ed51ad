//! Opens a log. The existing records are verified before any is added.
//!
//! ```text
//!  lock ─► frontier ─► predecessor's last line ─► last segment, every line ─► torn tail? cut ─► last batch written again ─► sync
//!                            │ not a record              │ not the next record
//!                            └────────► Damaged ◄────────┘   (never repaired, never skipped: a human decides)
//! ```
//!
//! The *frontier* is the state of the log when its last segment began. With it, only that segment has to be read. It is not evidence: if it
//! is missing or does not fit, the log is read from its beginning.
//!
//! The last batch is written again because of the pages that a failed fsync leaves. They can be read from memory, but they are not on the
//! disk, and a later fsync does not try them again. Writing the same bytes at the same offset cannot harm them.

use std::io;
use std::path::Path;

use serde_json::json;

use crate::canonical::{self, Envelope, MAX_LINE};
use crate::chain::{Break, Damage};
use crate::event::{Event, Kind};
use crate::hash::{Hash, LogId};
use crate::ledger::{FRONTIER, Frontier, Ledger};
use crate::lines::{Lines, Next, retry};
use crate::record::{Head, Record};
use crate::removal::{self, Removed};
use crate::segment::{Segment, SegmentName};
use crate::storage::{ClaimError, Disk, SegmentFile, Storage};
use crate::writer::{AppendError, Limits, MAX_BATCH, Tail, Writer, write_all};

/// Reason why a log cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another writer has the log open.
    #[error("the audit log is in use by another process")]
    Locked,
    /// The log was changed by something other than its writer. No file was changed.
    #[error("the audit log is damaged: {0}")]
    Damaged(#[source] Break),
    #[error("cannot open the audit log")]
    Io(#[from] io::Error),
    /// The repair could not be recorded.
    #[error("cannot record the repair of the audit log")]
    Record(#[source] AppendError),
}

impl From<ClaimError> for OpenError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::Locked => Self::Locked,
            ClaimError::Io(error) => Self::Io(error),
        }
    }
}

/// State of the log when it was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// Last record on disk before any was added. `None` if the log is new.
    ///
    /// After a failed append, it shows which of the events were recorded nevertheless.
    pub head: Option<Head>,
    /// Torn tail that was cut off, if there was one.
    pub repaired: Option<Repair>,
}

/// A torn tail that was cut off.
#[derive(Debug, Clone, PartialEq)]
pub struct Repair {
    /// File name of the segment.
    pub segment: String,
    /// New length of the segment, in bytes.
    pub offset: u64,
    /// Number of bytes that were cut off.
    pub bytes: u64,
    /// SHA-256 of these bytes.
    pub sha256: Hash,
    /// Record `log_repaired` that was appended for it.
    pub record: Record,
}

/// A torn tail that was cut off, and is not yet on record.
struct Torn {
    segment: SegmentName,
    offset: u64,
    bytes: u64,
    sha256: Hash,
}

impl Writer {
    /// Opens the log in `dir`, or begins a new one. Verifies the last segment, and repairs a torn tail on record.
    pub fn open(dir: &Path) -> Result<(Self, Opened), OpenError> {
        Self::open_with(dir, Limits::default())
    }

    pub fn open_with(dir: &Path, limits: Limits) -> Result<(Self, Opened), OpenError> {
        open(Box::new(Disk::claim(dir)?), limits)
    }
}

pub(crate) fn open(mut storage: Box<dyn Storage>, limits: Limits) -> Result<(Writer, Opened), OpenError> {
    let (start, mut segments) = beginning(storage.as_mut())?;
    let last = segments.pop_if(|last| !last.packed);
    let (mut ledger, read_from) = frontier(storage.as_mut(), start, &segments, last)?;
    for segment in segments.iter().filter(|segment| segment.name.0 >= read_from) {
        fold(storage.as_mut(), *segment, &mut ledger)?;
    }
    let (tail, torn) = match last {
        Some(last) => open_last(storage.as_mut(), last.name, &mut ledger)?,
        None => (None, None),
    };
    storage.sync_names()?;

    let log = match ledger.chain.log() {
        Some(log) => log,
        None => LogId::random()?,
    };
    let head = ledger.chain.head();
    let mut writer = Writer::resume(storage, limits, log, ledger, tail);
    let repaired = torn.map(|torn| record_repair(&mut writer, &torn)).transpose()?;
    Ok((writer, Opened { head, repaired }))
}

/// Returns the beginning of the log, and its segments from there on.
fn beginning(storage: &mut dyn Storage) -> Result<(Ledger, Vec<Segment>), OpenError> {
    let mut segments = storage.segments()?;
    let Some(file) = storage.load(removal::FILE)? else { return Ok((Ledger::genesis(), segments)) };
    let removed = Removed::parse(&file).ok_or_else(|| {
        let segment = removal::FILE.to_owned();
        OpenError::Damaged(Break { sequence: 1, segment, offset: 0, damage: Damage::Removal })
    })?;
    segments.retain(|segment| segment.name.0 > removed.last_sequence);
    Ok((removed.ledger, segments))
}

/// Returns the latest ledger that is known, and the name of the first segment that must be read after it.
fn frontier(
    storage: &mut dyn Storage,
    start: Ledger,
    sealed: &[Segment],
    last: Option<Segment>,
) -> Result<(Ledger, u64), OpenError> {
    let kept = storage.load(FRONTIER)?.as_deref().and_then(Frontier::decode);
    let kept = kept.as_ref().and_then(Ledger::behind).filter(|kept| {
        let next = kept.chain.next();
        let fits = sealed.iter().chain(last.as_ref()).any(|segment| segment.name.0 == next);
        fits && next > start.chain.next()
    });
    let Some(kept) = kept else {
        let next = start.chain.next();
        return Ok((start, next));
    };
    let next = kept.chain.next();
    // Segments that are not read must at least end with the right record.
    if let Some(before) = sealed.iter().rfind(|segment| segment.name.0 < next)
        && !before.packed
    {
        let found = last_record(storage, before.name, next - 1)?;
        if kept.chain.head() != Some(Head { sequence: found.sequence, hash: found.hash }) {
            let next = start.chain.next();
            return Ok((start, next));
        }
    } else if sealed.iter().all(|segment| segment.name.0 >= next) {
        let (sequence, segment) = (next - 1, SegmentName(next - 1).to_string());
        return Err(OpenError::Damaged(Break { sequence, segment, offset: 0, damage: Damage::Missing }));
    }
    Ok((kept, next))
}

/// Verifies a segment that is no longer written.
fn fold(storage: &mut dyn Storage, segment: Segment, ledger: &mut Ledger) -> Result<(), OpenError> {
    let damaged = |sequence, offset, damage| {
        Err(OpenError::Damaged(Break { sequence, segment: segment.to_string(), offset, damage }))
    };
    let next = ledger.chain.next();
    if segment.name.0 != next {
        let damage = if segment.name.0 > next { Damage::Missing } else { Damage::Duplicated };
        return damaged(next, 0, damage);
    }
    let mut lines = Lines::new(storage.read(segment)?, 0);
    loop {
        match lines.next() {
            Ok(Next::Line { offset, at }) => {
                if let Err(damage) = ledger.accept(lines.bytes(&at)) {
                    return damaged(ledger.chain.next(), offset, damage);
                }
            }
            Ok(Next::TooLong { offset } | Next::Unfinished { offset, .. }) => {
                return damaged(ledger.chain.next(), offset, Damage::Malformed);
            }
            Ok(Next::End) => return Ok(()),
            Err(error) if segment.packed && error.kind() == io::ErrorKind::InvalidData => {
                return damaged(segment.name.0, 0, Damage::Packed);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn record_repair(writer: &mut Writer, torn: &Torn) -> Result<Repair, OpenError> {
    let Torn { segment, offset, bytes, sha256 } = *torn;
    let segment = segment.to_string();
    let event = Event::new(Kind::LogRepaired).details(json!({
        "segment": segment, "offset": offset, "bytes": bytes, "sha256": sha256.to_string(),
    }));
    let record = writer.append(&event).map_err(OpenError::Record)?;
    Ok(Repair { segment, offset, bytes, sha256, record })
}

/// Returns the last record, `sequence`, of a segment that is not the last one, and so must end with a valid record.
fn last_record(storage: &mut dyn Storage, name: SegmentName, sequence: u64) -> Result<Envelope, OpenError> {
    let mut file = storage.open(name)?;
    let length = file.length()?;
    let window = length.min(MAX_LINE as u64 + 1); // one newline more than the line has
    let mut bytes = vec![0; usize::try_from(window).unwrap_or_default()];
    read_exact(file.as_mut(), &mut bytes, length - window)?;
    let damaged = |damage| {
        let line =
            bytes.iter().rev().skip(1).position(|b| *b == b'\n').unwrap_or(bytes.len().saturating_sub(1));
        let offset = length.saturating_sub(line as u64 + 1);
        OpenError::Damaged(Break { sequence, segment: name.to_string(), offset, damage })
    };
    let Some((b'\n', text)) = bytes.split_last() else { return Err(damaged(Damage::Malformed)) };
    let line = text.rsplit(|b| *b == b'\n').next().unwrap_or(text);
    canonical::open(line).map_err(|flaw| damaged(flaw.into()))
}

type Last = (Option<Tail>, Option<Torn>);

/// Verifies the last segment line by line, cuts off an unfinished line, and makes the rest durable.
fn open_last(storage: &mut dyn Storage, name: SegmentName, ledger: &mut Ledger) -> Result<Last, OpenError> {
    let damaged = |sequence, offset, damage| {
        Err(OpenError::Damaged(Break { sequence, segment: name.to_string(), offset, damage }))
    };
    let next = ledger.chain.next();
    if name.0 != next {
        let damage = if name.0 > next { Damage::Missing } else { Damage::Duplicated };
        return damaged(next, 0, damage);
    }
    let mut began = None;
    let mut lines = Lines::new(storage.open(name)?, 0);
    let unfinished = loop {
        match lines.next()? {
            Next::Line { offset, at } => match ledger.accept(lines.bytes(&at)) {
                Ok((envelope, _)) => began = began.or(Some(envelope.time)),
                Err(damage) => return damaged(ledger.chain.next(), offset, damage),
            },
            Next::TooLong { offset } => return damaged(ledger.chain.next(), offset, Damage::Malformed),
            Next::Unfinished { bytes, .. } => break bytes,
            Next::End => break 0,
        }
    };
    let length = lines.offset();
    let mut file = lines.into_source();
    let torn = match unfinished {
        0 => None,
        bytes => {
            let mut cut = vec![0; bytes];
            read_exact(file.as_mut(), &mut cut, length)?;
            file.truncate(length)?;
            Some(Torn { segment: name, offset: length, bytes: bytes as u64, sha256: Hash::of(&cut) })
        }
    };
    write_again(file.as_mut(), length)?;
    Ok((Some(Tail { file, length, began }), torn))
}

fn write_again(file: &mut dyn SegmentFile, length: u64) -> io::Result<()> {
    let from = length.saturating_sub(MAX_BATCH as u64);
    let mut bytes = vec![0; usize::try_from(length - from).unwrap_or_default()];
    read_exact(file, &mut bytes, from)?;
    write_all(file, &bytes, from)?;
    file.sync()
}

fn read_exact(file: &mut dyn SegmentFile, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match retry(|| file.read_at(buffer, offset))? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
        }
    }
    Ok(())
}
