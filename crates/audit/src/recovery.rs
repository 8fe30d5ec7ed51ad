//! Opening a log: what is there is proved before anything is added.
//!
//! ```text
//!  lock ─► predecessor's last line ─► last segment, every line ─► torn tail? cut ─► last batch written again ─► sync
//!                │ not a record              │ not the next record
//!                └────────► Damaged ◄────────┘   (never repaired, never skipped: a human decides)
//! ```
//!
//! The last batch is written again because of what a failed fsync leaves behind: pages that read well from memory, are
//! on no disk, and are not tried again by a later fsync. Writing the same bytes in the same place cannot harm them.

use std::io;
use std::path::Path;

use serde_json::json;

use crate::canonical::{self, Envelope, MAX_LINE};
use crate::chain::{Break, Chain, Damage};
use crate::event::{Event, Kind};
use crate::hash::{Hash, LogId};
use crate::record::{Head, Record};
use crate::segment::{Lines, Next, SegmentName, retry};
use crate::storage::{ClaimError, Disk, SegmentFile, Storage};
use crate::writer::{AppendError, Limits, MAX_BATCH, Tail, Writer, write_all};

/// Why a log cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another writer holds the log.
    #[error("the audit log is in use by another process")]
    Locked,
    /// The log was changed by something else than its writer; nothing was touched.
    #[error("the audit log is damaged: {0}")]
    Damaged(#[source] Break),
    /// The disk failed.
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

/// What was found when the log was opened.
#[derive(Debug, Clone, PartialEq)]
pub struct Opened {
    /// The last record on disk, before anything was added. `None`: the log is new.
    ///
    /// After a failed append, this tells which of its events were recorded all the same.
    pub head: Option<Head>,
    /// What was cut off, if anything.
    pub repaired: Option<Repair>,
}

/// A torn tail that was cut.
#[derive(Debug, Clone, PartialEq)]
pub struct Repair {
    /// The segment's file name.
    pub segment: String,
    /// The segment's length now, in bytes.
    pub offset: u64,
    /// How many bytes were cut.
    pub bytes: u64,
    /// Their SHA-256.
    pub sha256: Hash,
    /// The `log_repaired` record that was appended to say so.
    pub record: Record,
}

/// A tail as it was found: cut bytes, not yet on record.
struct Torn {
    segment: SegmentName,
    offset: u64,
    bytes: u64,
    sha256: Hash,
}

pub(crate) fn open_dir(dir: &Path, limits: Limits) -> Result<(Writer, Opened), OpenError> {
    open(Box::new(Disk::claim(dir)?), limits)
}

pub(crate) fn open(mut storage: Box<dyn Storage>, limits: Limits) -> Result<(Writer, Opened), OpenError> {
    let names = storage.segments()?;
    let (chain, tail, torn) = match names[..] {
        [] => (Chain::genesis(), None, None),
        [.., last] => {
            let chain = match names[..] {
                [.., before, _] => {
                    Chain::after(&last_record(storage.as_mut(), before, last.0.saturating_sub(1))?)
                }
                _ => Chain::genesis(),
            };
            open_last(storage.as_mut(), last, chain)?
        }
    };
    storage.sync_names()?;

    let log = match chain.log() {
        Some(log) => log,
        None => LogId::random()?,
    };
    let head = chain.head();
    let mut writer = Writer::resume(storage, limits, log, head, tail);
    let repaired = torn.map(|torn| record_repair(&mut writer, &torn)).transpose()?;
    Ok((writer, Opened { head, repaired }))
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

/// The last record of a segment that is not the last, which must end in a good one: record `sequence`.
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

type Last = (Chain, Option<Tail>, Option<Torn>);

/// Proves the last segment line by line, cuts what has no end, and makes the rest durable.
fn open_last(storage: &mut dyn Storage, name: SegmentName, mut chain: Chain) -> Result<Last, OpenError> {
    let damaged = |sequence, offset, damage| {
        Err(OpenError::Damaged(Break { sequence, segment: name.to_string(), offset, damage }))
    };
    if name.0 != chain.next() {
        let damage = if name.0 > chain.next() { Damage::Missing } else { Damage::Duplicated };
        return damaged(chain.next(), 0, damage);
    }
    let mut lines = Lines::new(storage.open(name)?, 0);
    let unfinished = loop {
        match lines.next()? {
            Next::Line { offset, at } => {
                if let Err(damage) = chain.accept(lines.bytes(&at)) {
                    return damaged(chain.next(), offset, damage);
                }
            }
            Next::TooLong { offset } => return damaged(chain.next(), offset, Damage::Malformed),
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
    Ok((chain, Some(Tail { file, length }), torn))
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
