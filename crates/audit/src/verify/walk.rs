//! One pass over the log, record by record.

use std::io;

use super::files::{self, LogFiles};
use super::trust::{Shelf, Trust};
use super::{Against, Integrity, Progress, Report};
use crate::canonical;
use crate::chain::{Break, Damage};
use crate::checkpoint::Checkpoint;
use crate::ledger::{Ledger, Mark};
use crate::lines::{Lines, Next};
use crate::record::Head;
use crate::removal::{self, Removed};
use crate::segment::{Segment, SegmentName};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Whole,
    UpToHead,
}

/// Reason why a walk ended early.
enum Stop {
    Broken(Break),
    Reached,
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

pub(super) struct Walk<'a> {
    files: &'a dyn LogFiles,
    scope: Scope,
    /// Segments with their lengths at the beginning. Records that are appended later are not read.
    segments: Vec<(Segment, u64)>,
    known: Option<Head>,
    ledger: Ledger,
    trust: Trust,
    shelf: Shelf,
    /// Content of the file with the record of a removal.
    removal: Option<Vec<u8>>,
    removed: Option<Removed>,
    checkpoints: u64,
    covered: u64,
    passed: u64,
    total: u64,
    progress: &'a mut dyn FnMut(Progress),
}

/// Interval between two reports of the progress, in bytes.
const STEP: u64 = 1024 * 1024;

impl<'a> Walk<'a> {
    pub(super) fn new(
        files: &'a dyn LogFiles,
        against: Against,
        scope: Scope,
        progress: &'a mut dyn FnMut(Progress),
    ) -> io::Result<Self> {
        // Loaded before the lengths are read. A writer may add a checkpoint or a removal at any time, and the records that it names are
        // then among those that are read.
        let removal = files::load(files, removal::FILE)?;
        let shelf = Shelf::load(files, against.checkpoints)?;
        let mut segments = Vec::new();
        for segment in files::segments(files)? {
            segments.push((segment, files.length(&segment.to_string())?));
        }
        let total = segments.iter().map(|(_, length)| length).sum();
        Ok(Self {
            files,
            scope,
            segments,
            known: against.head,
            ledger: Ledger::genesis(),
            trust: Trust::new(against.keys),
            shelf,
            removal,
            removed: None,
            checkpoints: 0,
            covered: 0,
            passed: 0,
            total,
            progress,
        })
    }

    pub(super) fn run(mut self) -> io::Result<Report> {
        let integrity = match self.walk() {
            Ok(()) | Err(Stop::Reached) => Integrity::Intact,
            Err(Stop::Broken(broken)) => Integrity::Broken(broken),
            Err(Stop::Io(error)) => return Err(error),
        };
        (self.progress)(Progress { done: self.total, total: self.total });
        let removed = self.removed.as_ref().map_or(0, |removed| removed.last_sequence);
        let chain = self.ledger.chain;
        Ok(Report {
            log: chain.log(),
            records: chain.next() - 1 - removed,
            head: chain.head(),
            removed,
            checkpoints: self.checkpoints,
            covered: self.covered,
            keys: self.trust.used,
            segments: self.segments.len(),
            bytes: self.total,
            integrity,
        })
    }

    fn walk(&mut self) -> Result<(), Stop> {
        self.begin()?;
        for index in 0..self.segments.len() {
            self.segment(index)?;
        }
        self.end()
    }

    /// Begins after the removed records, if there are any.
    fn begin(&mut self) -> Result<(), Stop> {
        let Some(file) = self.removal.take() else { return Ok(()) };
        let broken = |sequence| {
            let segment = removal::FILE.to_owned();
            Stop::Broken(Break { sequence, segment, offset: 0, damage: Damage::Removal })
        };
        let removed = Removed::parse(&file).ok_or_else(|| broken(1))?;
        self.ledger = removed.ledger.clone();
        let (last, log) = (removed.last_sequence, self.ledger.chain.log());
        self.removed = Some(removed);
        for entry in self.ledger.keys() {
            if !log.is_some_and(|log| self.trust.name(log, entry)) {
                return Err(broken(last + 1));
            }
        }
        self.segments.retain(|(segment, _)| segment.name.0 > last);
        self.shelf.drop_below(last);
        self.meet(last, removal::FILE, 0)
    }

    fn end(&mut self) -> Result<(), Stop> {
        let rolled_back = |walk: &Self| {
            let (segment, length) =
                walk.segments.last().copied().unwrap_or((Segment::plain(SegmentName(1)), 0));
            walk.broken(segment, length, Damage::RolledBack)
        };
        let last = self.ledger.chain.next() - 1;
        if self.known.is_some_and(|known| known.sequence > last)
            || self.removed.as_ref().is_some_and(|removed| removed.record.sequence > last)
        {
            return Err(rolled_back(self));
        }
        match self.shelf.next() {
            Some((_, waiting))
                if waiting.checkpoint.as_ref().is_some_and(|checkpoint| self.trust.signed(checkpoint)) =>
            {
                Err(rolled_back(self))
            }
            Some((size, waiting)) => Err(Stop::Broken(Break {
                sequence: size,
                segment: waiting.name,
                offset: 0,
                damage: Damage::Unsigned,
            })),
            None => Ok(()),
        }
    }

    fn segment(&mut self, index: usize) -> Result<(), Stop> {
        let (segment, length) = self.segments[index];
        let (name, next) = (segment.name, self.ledger.chain.next());
        if name.0 > next {
            return Err(self.missing(index, 0, Segment::plain(SegmentName(next))));
        }
        if name.0 < next {
            return Err(self.broken(segment, 0, Damage::Duplicated));
        }
        if files::is_spoilt(self.files, segment)? {
            return Err(self.broken(segment, 0, Damage::Packed));
        }
        let last = index + 1 == self.segments.len();
        let limit = if segment.packed { u64::MAX } else { length };
        let mut lines = Lines::limited(files::open(self.files, segment)?, 0, limit);
        let mut told = 0;
        loop {
            match lines.next()? {
                Next::Line { offset, at } => match self.record(lines.bytes(&at), segment, offset) {
                    Err(Stop::Broken(broken)) if broken.damage == Damage::Missing => {
                        return Err(self.missing(index, offset, segment));
                    }
                    result => result?,
                },
                Next::TooLong { offset } => return Err(self.broken(segment, offset, Damage::Malformed)),
                Next::Unfinished { offset, .. } => {
                    let damage = if last && !segment.packed { Damage::TornTail } else { Damage::Malformed };
                    return Err(self.broken(segment, offset, damage));
                }
                Next::End => break,
            }
            if !segment.packed && lines.offset() - told >= STEP {
                told = lines.offset();
                (self.progress)(Progress { done: self.passed + told, total: self.total });
            }
        }
        self.passed += length;
        (self.progress)(Progress { done: self.passed, total: self.total });
        Ok(())
    }

    fn record(&mut self, line: &[u8], segment: Segment, offset: u64) -> Result<(), Stop> {
        let root = self.ledger.tree().root_if(|| canonical::kind_of(line) == Some("checkpoint"));
        let (envelope, mark) =
            self.ledger.accept(line).map_err(|damage| self.broken(segment, offset, damage))?;
        let here = |damage| {
            let segment = segment.to_string();
            Err(Stop::Broken(Break { sequence: envelope.sequence, segment, offset, damage }))
        };
        match mark {
            Some(Mark::Key(entry)) if !self.trust.name(envelope.log, &entry) => {
                return here(Damage::Malformed);
            }
            Some(Mark::Checkpoint(note)) => {
                let size = envelope.sequence - 1;
                let checkpoint = Checkpoint::parse(&note)
                    .filter(|found| found.size == size && found.log == envelope.log)
                    .filter(|found| self.trust.signed(found));
                let Some(checkpoint) = checkpoint else { return here(Damage::Unsigned) };
                if root != Some(checkpoint.root) {
                    return Err(self.rewritten(&segment.to_string(), offset));
                }
                self.holds(size);
            }
            _ => {}
        }
        let removal = self.removed.as_ref().map(|removed| removed.record);
        if removal.is_some_and(|record| record.sequence == envelope.sequence && record.hash != envelope.hash)
        {
            return Err(self.rewritten(&segment.to_string(), offset));
        }
        self.meet(envelope.sequence, &segment.to_string(), offset)?;
        match self.known {
            Some(known) if known.sequence == envelope.sequence && known.hash != envelope.hash => {
                here(Damage::RolledBack)
            }
            Some(known) if known.sequence == envelope.sequence && self.scope == Scope::UpToHead => {
                Err(Stop::Reached)
            }
            _ => Ok(()),
        }
    }

    /// Compares the tree with the checkpoints of the first `size` records.
    fn meet(&mut self, size: u64, segment: &str, offset: u64) -> Result<(), Stop> {
        for waiting in self.shelf.take(size) {
            let signed = waiting
                .checkpoint
                .filter(|found| Some(found.log) == self.ledger.chain.log() && self.trust.signed(found));
            let Some(checkpoint) = signed else {
                return Err(Stop::Broken(Break {
                    sequence: size,
                    segment: waiting.name,
                    offset: 0,
                    damage: Damage::Unsigned,
                }));
            };
            if checkpoint.root != self.ledger.tree().root() {
                return Err(self.rewritten(segment, offset));
            }
            self.holds(size);
        }
        Ok(())
    }

    /// Notes a valid checkpoint of this size. There may be several copies of it.
    fn holds(&mut self, size: u64) {
        if size > self.covered {
            self.checkpoints += 1;
            self.covered = size;
        }
    }

    /// Reports a wrong root of a valid chain. The damage is somewhere after the last valid checkpoint.
    fn rewritten(&self, segment: &str, offset: u64) -> Stop {
        let removed = self.removed.as_ref().map_or(0, |removed| removed.last_sequence);
        let sequence = self.covered.max(removed) + 1;
        Stop::Broken(Break { sequence, segment: segment.to_owned(), offset, damage: Damage::Rewritten })
    }

    fn broken(&self, segment: Segment, offset: u64, damage: Damage) -> Stop {
        let sequence = self.ledger.chain.next();
        Stop::Broken(Break { sequence, segment: segment.to_string(), offset, damage })
    }

    /// Reports that the next record is not at its position, and searches for it later in the log.
    ///
    /// `from` is the position in the segment `index` where the search begins, and `at` is the segment where the record should be.
    fn missing(&self, index: usize, from: u64, at: Segment) -> Stop {
        match self.appears_behind(index, from) {
            Ok(true) => self.broken(at, from, Damage::Reordered),
            Ok(false) => self.broken(at, from, Damage::Missing),
            Err(error) => Stop::Io(error),
        }
    }

    fn appears_behind(&self, index: usize, mut from: u64) -> io::Result<bool> {
        let chain = self.ledger.chain;
        for (segment, length) in &self.segments[index..] {
            if files::is_spoilt(self.files, *segment)? {
                continue;
            }
            let limit = if segment.packed { u64::MAX } else { *length };
            let mut lines = Lines::limited(files::open(self.files, *segment)?, from, limit);
            from = 0;
            while let Next::Line { at, .. } = lines.next()? {
                let line = lines.bytes(&at);
                let candidate = canonical::sequence_of(line) == Some(chain.next());
                if candidate
                    && canonical::open(line).is_ok_and(|found| chain.log().is_none_or(|l| l == found.log))
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}
