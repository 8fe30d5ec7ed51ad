//! Proving a whole log from its files alone, in constant memory.
//!
//! Finds every edit, deletion, reordering, duplication and foreign record, and names the first place that does not
//! hold. What it cannot find without help: that whole records were cut from the very end, or that somebody who can
//! compute SHA-256 wrote the rest of the log anew. Both are found by comparing with a [`Head`] kept elsewhere.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::canonical;
use crate::chain::{Break, Chain, Damage};
use crate::hash::LogId;
use crate::record::Head;
use crate::segment::{self, Lines, Next, SegmentName};

/// How far a verification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes looked at.
    pub done: u64,
    /// Bytes that were there when it began.
    pub total: u64,
}

/// Whether a log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// Every record follows its predecessor.
    Intact,
    /// It does up to here.
    Broken(Break),
}

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The log's identity, from its first good record.
    pub log: Option<LogId>,
    /// How many records are good, from the first on.
    pub records: u64,
    /// The last good record.
    pub head: Option<Head>,
    /// How many segments there are.
    pub segments: usize,
    /// How many bytes they have.
    pub bytes: u64,
    /// Whether all of it holds.
    pub integrity: Integrity,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_intact(&self) -> bool {
        self.integrity == Integrity::Intact
    }
}

/// Proves the log in `dir`. A line without an end counts as [`Damage::TornTail`]: of a log that is being written, use
/// [`verify_up_to`].
pub fn verify(dir: &Path, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    Walk::new(dir, None, progress)?.run(Scope::Whole)
}

/// Proves the log in `dir`, and that `known` is in it: finds truncation and rewriting up to there.
pub fn verify_against(dir: &Path, known: Head, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    Walk::new(dir, Some(known), progress)?.run(Scope::Whole)
}

/// Proves the log in `dir` up to `known`, and does not look at what a writer may be appending behind it.
pub fn verify_up_to(dir: &Path, known: Head, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    Walk::new(dir, Some(known), progress)?.run(Scope::UpToKnown)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Whole,
    UpToKnown,
}

/// Why a walk ended early.
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

struct Walk<'a> {
    dir: &'a Path,
    /// Each with the length that it had at the beginning: what is appended later is not looked at.
    segments: Vec<(SegmentName, u64)>,
    known: Option<Head>,
    chain: Chain,
    passed: u64,
    total: u64,
    progress: &'a mut dyn FnMut(Progress),
}

/// Progress is told this often, in bytes.
const STEP: u64 = 1024 * 1024;

impl<'a> Walk<'a> {
    fn new(dir: &'a Path, known: Option<Head>, progress: &'a mut dyn FnMut(Progress)) -> io::Result<Self> {
        let mut segments = Vec::new();
        for name in segment::list(dir)? {
            segments.push((name, name.path(dir).metadata()?.len()));
        }
        let total = segments.iter().map(|(_, length)| length).sum();
        Ok(Self { dir, segments, known, chain: Chain::genesis(), passed: 0, total, progress })
    }

    fn run(mut self, scope: Scope) -> io::Result<Report> {
        let integrity = match self.walk(scope) {
            Ok(()) | Err(Stop::Reached) => Integrity::Intact,
            Err(Stop::Broken(broken)) => Integrity::Broken(broken),
            Err(Stop::Io(error)) => return Err(error),
        };
        (self.progress)(Progress { done: self.total, total: self.total });
        Ok(Report {
            log: self.chain.log(),
            records: self.chain.next() - 1,
            head: self.chain.head(),
            segments: self.segments.len(),
            bytes: self.total,
            integrity,
        })
    }

    fn walk(&mut self, scope: Scope) -> Result<(), Stop> {
        for index in 0..self.segments.len() {
            self.segment(index, scope)?;
        }
        match self.known {
            Some(known) if known.sequence >= self.chain.next() => {
                let (name, length) = self.segments.last().copied().unwrap_or((SegmentName(1), 0));
                Err(self.broken(name, length, Damage::RolledBack))
            }
            _ => Ok(()),
        }
    }

    fn segment(&mut self, index: usize, scope: Scope) -> Result<(), Stop> {
        let (name, length) = self.segments[index];
        if name.0 > self.chain.next() {
            return Err(self.missing(index, 0, SegmentName(self.chain.next())));
        }
        if name.0 < self.chain.next() {
            return Err(self.broken(name, 0, Damage::Duplicated));
        }
        let last = index + 1 == self.segments.len();
        let mut lines = Lines::limited(File::open(name.path(self.dir))?, 0, length);
        let mut told = 0;
        loop {
            match lines.next()? {
                Next::Line { offset, at } => match self.chain.accept(lines.bytes(&at)) {
                    Ok(_) => self.check_known(name, offset, scope)?,
                    Err(Damage::Missing) => return Err(self.missing(index, offset, name)),
                    Err(damage) => return Err(self.broken(name, offset, damage)),
                },
                Next::TooLong { offset } => return Err(self.broken(name, offset, Damage::Malformed)),
                Next::Unfinished { offset, .. } => {
                    let damage = if last { Damage::TornTail } else { Damage::Malformed };
                    return Err(self.broken(name, offset, damage));
                }
                Next::End => break,
            }
            if lines.offset() - told >= STEP {
                told = lines.offset();
                (self.progress)(Progress { done: self.passed + told, total: self.total });
            }
        }
        self.passed += length;
        Ok(())
    }

    fn check_known(&self, name: SegmentName, offset: u64, scope: Scope) -> Result<(), Stop> {
        let Some((known, head)) = self.known.zip(self.chain.head()) else { return Ok(()) };
        if known.sequence != head.sequence {
            return Ok(());
        }
        if known.hash != head.hash {
            let segment = name.to_string();
            return Err(Stop::Broken(Break {
                sequence: head.sequence,
                segment,
                offset,
                damage: Damage::RolledBack,
            }));
        }
        if scope == Scope::UpToKnown { Err(Stop::Reached) } else { Ok(()) }
    }

    fn broken(&self, name: SegmentName, offset: u64, damage: Damage) -> Stop {
        Stop::Broken(Break { sequence: self.chain.next(), segment: name.to_string(), offset, damage })
    }

    /// The record that must come next is not here. Is it further behind? `from` is where the search begins in the
    /// segment `index`, `name` is where it should be.
    fn missing(&self, index: usize, from: u64, name: SegmentName) -> Stop {
        match self.appears_behind(index, from) {
            Ok(true) => self.broken(name, from, Damage::Reordered),
            Ok(false) => self.broken(name, from, Damage::Missing),
            Err(error) => Stop::Io(error),
        }
    }

    fn appears_behind(&self, index: usize, mut from: u64) -> io::Result<bool> {
        for (name, length) in &self.segments[index..] {
            let mut lines = Lines::limited(File::open(name.path(self.dir))?, from, *length);
            from = 0;
            while let Next::Line { at, .. } = lines.next()? {
                let line = lines.bytes(&at);
                let candidate = canonical::sequence_of(line) == Some(self.chain.next());
                if candidate
                    && canonical::open(line)
                        .is_ok_and(|found| self.chain.log().is_none_or(|l| l == found.log))
                {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests;
