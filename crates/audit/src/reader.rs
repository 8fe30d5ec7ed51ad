//! Reads a log in order, from any record on, while it grows.
//!
//! It needs no lock and does not disturb the writer. Every record is checked against its own hash and its predecessor before it is
//! returned. A reader sees the state of the operating system, which may be slightly ahead of the durable state. A reader that must not be
//! ahead stops at the writer's head (see [`Reader::next_sequence`]).

use std::io;
use std::ops::Range;
use std::path::PathBuf;

use crate::canonical::{self, Envelope};
use crate::chain::{Break, Chain, Damage};
use crate::lines::{self, Lines, Next, ReadAt as _};
use crate::record::Record;
use crate::removal::{self, Removed};
use crate::segment::{self, Segment, SegmentName, Source};
use crate::storage;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The log is damaged at this position, and the reader does not continue.
    #[error("the audit log is damaged: {0}")]
    Damaged(#[source] Break),
    /// The disk failed. The reader may be called again.
    #[error("cannot read the audit log")]
    Io(#[from] io::Error),
}

/// Reads records in order, and can be called again for records that were appended since.
///
/// As an iterator it ends at the present end of the log. A later call of `next` continues from there.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    after: u64,
    chain: Chain,
    current: Option<Current>,
    broken: Option<Break>,
}

#[derive(Debug)]
struct Current {
    name: SegmentName,
    lines: Lines<Source>,
}

/// A record's line that was verified, and its range in the buffer.
struct Found {
    envelope: Envelope,
    offset: u64,
    at: Range<usize>,
}

impl Reader {
    /// Reads the records after `after_sequence` of the log in `dir`, or all if it is 0. No file is opened yet.
    ///
    /// A missing directory is an error of the first read, and an empty one is a log that may still begin. If the beginning of the log was
    /// removed, and that is on record, it reads the remaining records. The first record's sequence number shows this.
    pub fn from(dir: impl Into<PathBuf>, after_sequence: u64) -> Self {
        let chain = Chain::starting_at(after_sequence.saturating_add(1));
        Self { dir: dir.into(), after: after_sequence, chain, current: None, broken: None }
    }

    /// Returns the sequence number of the next record, whether it exists already or not.
    pub fn next_sequence(&self) -> u64 {
        self.chain.next().max(self.after.saturating_add(1))
    }

    /// Returns the next record exactly as it is on disk, without its newline.
    pub fn next_line(&mut self) -> Result<Option<&str>, ReadError> {
        let Some(found) = self.step()? else { return Ok(None) };
        let line = self.bytes(&found.at);
        // A verified line is UTF-8.
        Ok(Some(std::str::from_utf8(line).unwrap_or_default()))
    }

    /// Returns the next line like [`Self::next_line`], and its position in its segment, by which [`crate::Lookup`] finds it.
    pub fn next_with_position(&mut self) -> Result<Option<(&str, u64)>, ReadError> {
        let Some(Found { offset, at, .. }) = self.step()? else { return Ok(None) };
        Ok(Some((std::str::from_utf8(self.bytes(&at)).unwrap_or_default(), offset)))
    }

    /// Returns the next record, and its line like [`Self::next_line`].
    pub fn next_with_line(&mut self) -> Result<Option<(Record, &str)>, ReadError> {
        let Some(Found { envelope, offset, at }) = self.step()? else { return Ok(None) };
        match canonical::record(&envelope, self.bytes(&at)) {
            // A verified line is UTF-8.
            Ok(record) => Ok(Some((record, std::str::from_utf8(self.bytes(&at)).unwrap_or_default()))),
            // The chain is valid, but the line is not an event. The writer never creates such a line.
            Err(_) => Err(self.fail(envelope.sequence, offset, Damage::Malformed)),
        }
    }

    fn bytes(&self, at: &Range<usize>) -> &[u8] {
        self.current.as_ref().map(|current| current.lines.bytes(at)).unwrap_or_default()
    }

    fn step(&mut self) -> Result<Option<Found>, ReadError> {
        if let Some(broken) = &self.broken {
            return Err(ReadError::Damaged(broken.clone()));
        }
        loop {
            let Some(current) = &mut self.current else {
                if self.enter()? {
                    continue;
                }
                return Ok(None);
            };
            let next = match current.lines.next() {
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    let offset = current.lines.offset();
                    return Err(self.fail(self.chain.next(), offset, Damage::Packed));
                }
                next => next?,
            };
            match next {
                Next::Line { offset, at } => match self.chain.accept(current.lines.bytes(&at)) {
                    Ok(envelope) if envelope.sequence <= self.after => {}
                    Ok(envelope) => return Ok(Some(Found { envelope, offset, at })),
                    Err(damage) => return Err(self.fail(self.chain.next(), offset, damage)),
                },
                Next::TooLong { offset } => {
                    return Err(self.fail(self.chain.next(), offset, Damage::Malformed));
                }
                next @ (Next::Unfinished { .. } | Next::End) => {
                    let (offset, whole) = (current.lines.offset(), next == Next::End);
                    let name = SegmentName(self.chain.next());
                    if name == current.name {
                        return Ok(None);
                    }
                    let Some(source) = segment::open(&self.dir, name)? else {
                        if self.was_removed(name.0)? {
                            // The reader was so slow that its part of the log was removed meanwhile. It continues with the remaining
                            // records.
                            (self.current, self.after) = (None, name.0 - 1);
                            continue;
                        }
                        return Ok(None);
                    };
                    if !whole {
                        return Err(self.fail(name.0, offset, Damage::Malformed));
                    }
                    self.current = Some(Current { name, lines: Lines::new(source, 0) });
                }
            }
        }
    }

    /// Enters the segment that contains, or will contain, the first wanted record. Returns false if there is no segment yet.
    fn enter(&mut self) -> Result<bool, ReadError> {
        let wanted = self.after.saturating_add(1);
        let segments = segment::list(&self.dir)?;
        let Some(first) = segments.first() else { return Ok(false) };
        let segment = *segments.iter().rfind(|segment| segment.name.0 <= wanted).unwrap_or(first);
        let Segment { name, .. } = segment;
        let mut source = match segment.open(&self.dir) {
            // The segment was removed after it was listed. The remaining records begin after it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && name == first.name => {
                return self.enter_rest(name);
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return Err(self.fail(name.0, 0, Damage::Packed));
            }
            source => source?,
        };
        let offset = match &mut source {
            Source::Plain(file) => lines::seek(file, file.metadata()?.len(), wanted)?,
            Source::Packed(_) => 0,
        };
        let start = if offset == 0 { name.0 } else { first_sequence(&mut source, offset)?.unwrap_or(name.0) };
        self.chain = Chain::starting_at(start);
        self.current = Some(Current { name, lines: Lines::new(source, offset) });
        if start > wanted && !self.was_removed(start - 1)? {
            return Err(self.fail(wanted, 0, Damage::Missing));
        }
        Ok(true)
    }

    fn enter_rest(&mut self, gone: SegmentName) -> Result<bool, ReadError> {
        if segment::list(&self.dir)?.first().is_some_and(|first| first.name > gone) {
            return self.enter();
        }
        Err(io::Error::from(io::ErrorKind::NotFound).into())
    }

    /// Returns true if all records up to `last` were removed and the removal is on record.
    fn was_removed(&self, last: u64) -> io::Result<bool> {
        let file = storage::load(&self.dir, removal::FILE)?;
        Ok(file.as_deref().and_then(Removed::parse).is_some_and(|removed| removed.last_sequence >= last))
    }

    fn fail(&mut self, sequence: u64, offset: u64, damage: Damage) -> ReadError {
        let name = self.current.as_ref().map_or(SegmentName(sequence), |current| current.name);
        let broken = Break { sequence, segment: name.to_string(), offset, damage };
        self.broken = Some(broken.clone());
        ReadError::Damaged(broken)
    }
}

impl Iterator for Reader {
    type Item = Result<Record, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_with_line().map(|next| next.map(|(record, _)| record)).transpose()
    }
}

fn first_sequence(source: &mut Source, offset: u64) -> io::Result<Option<u64>> {
    let mut start = [0; 128];
    let count = lines::retry(|| source.read_at(&mut start, offset))?;
    Ok(canonical::sequence_of(&start[..count]))
}

#[cfg(test)]
mod tests;
