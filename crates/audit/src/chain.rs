//! The rule of the chain. Writer, reader and verifier all accept a line here.

use std::fmt;

use crate::canonical::{self, Envelope, Flaw};
use crate::hash::{Hash, LogId};
use crate::record::Head;

/// Kind of damage of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Damage {
    /// The line is not a record.
    Malformed,
    /// The record's bytes do not match its hash.
    Edited,
    /// The record is valid in itself but does not follow its predecessor. One of the two was rewritten.
    Unlinked,
    /// The record is neither at its position nor later.
    Missing,
    /// The record is not at its position, but later.
    Reordered,
    /// An earlier sequence number occurs again.
    Duplicated,
    /// The record belongs to another log.
    ForeignLog,
    /// The last line has no newline, because an append was cut short. Opening the log for writing repairs it.
    TornTail,
    /// The log ends before the head with which it is compared, or has another record at its position.
    RolledBack,
    /// A compressed segment cannot be unpacked completely. Its bytes do not show which of its records are damaged.
    Packed,
    /// The file that describes the removal of older segments does not contain a valid record of this log.
    Removal,
    /// The log does not have the root that was signed. Some record between here and the checkpoint was rewritten.
    Rewritten,
    /// A checkpoint is malformed, or is not signed by a trusted key.
    Unsigned,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "is not a record",
            Self::Edited => "was edited",
            Self::Unlinked => "does not follow its predecessor: one of the two was rewritten",
            Self::Missing => "is missing",
            Self::Reordered => "is not at its position, but later",
            Self::Duplicated => "is preceded by a copy of an earlier record",
            Self::ForeignLog => "belongs to another log",
            Self::TornTail => "is torn: the log ends in the middle of it",
            Self::RolledBack => "differs from the one seen earlier: the log was rolled back or rewritten",
            Self::Packed => "is in a compressed segment that cannot be unpacked whole",
            Self::Removal => "should follow the removed records, but the record of the removal is not valid",
            Self::Rewritten => "or one after it was rewritten: the signed checkpoint has another root",
            Self::Unsigned => "has a checkpoint that no trusted key has signed",
        })
    }
}

impl From<Flaw> for Damage {
    fn from(flaw: Flaw) -> Self {
        match flaw {
            Flaw::Malformed => Self::Malformed,
            Flaw::HashMismatch => Self::Edited,
        }
    }
}

/// The first bad record of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {sequence} {damage} ({segment}, byte {offset})")]
pub struct Break {
    /// First position in the chain that is not valid. Every record before it is good.
    pub sequence: u64,
    /// File name of the segment. If the segment is missing, the name that was expected.
    pub segment: String,
    /// Position in the segment where the bad line begins, in bytes.
    pub offset: u64,
    pub damage: Damage,
}

/// State of the chain, which determines the next valid line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chain {
    log: Option<LogId>,
    next: u64,
    previous: Option<Hash>,
}

impl Chain {
    /// Creates the chain of a log from its first record on.
    pub(crate) fn genesis() -> Self {
        Self { log: None, next: 1, previous: None }
    }

    /// Creates a chain that begins at `next`. The link of its first record is trusted, unless the record is the log's first.
    pub(crate) fn starting_at(next: u64) -> Self {
        Self { log: None, next, previous: None }
    }

    /// Creates the chain after a record that is known to be good.
    pub(crate) fn after(envelope: &Envelope) -> Self {
        Self {
            log: Some(envelope.log),
            next: envelope.sequence.saturating_add(1),
            previous: Some(envelope.hash),
        }
    }

    /// Creates the chain after the record `head` of `log`.
    pub(crate) fn behind(log: LogId, head: Head) -> Self {
        Self { log: Some(log), next: head.sequence.saturating_add(1), previous: Some(head.hash) }
    }

    /// Returns the sequence number that the next record must have.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn log(&self) -> Option<LogId> {
        self.log
    }

    /// Returns the last accepted record.
    pub(crate) fn head(&self) -> Option<Head> {
        self.previous.map(|hash| Head { sequence: self.next - 1, hash })
    }

    /// Accepts a line as the next record, or returns the damage and does not advance.
    pub(crate) fn accept(&mut self, line: &[u8]) -> Result<Envelope, Damage> {
        let envelope = canonical::open(line)?;
        if self.log.is_some_and(|log| log != envelope.log) {
            return Err(Damage::ForeignLog);
        }
        if envelope.sequence > self.next {
            return Err(Damage::Missing);
        }
        if envelope.sequence < self.next {
            return Err(Damage::Duplicated);
        }
        let expected = self.previous.or_else(|| (self.next == 1).then(|| envelope.log.genesis()));
        if expected.is_some_and(|hash| hash != envelope.previous) {
            return Err(Damage::Unlinked);
        }
        *self = Self::after(&envelope);
        Ok(envelope)
    }
}
