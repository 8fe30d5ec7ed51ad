//! A recorded event, with its position in the chain and its hashes.

use crate::event::Event;
use crate::hash::{Hash, LogId};
use timestamp::Timestamp;

/// An event that is in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub log: LogId,
    /// Position in the log, from 1, without gaps.
    pub sequence: u64,
    /// Time of writing, by the wall clock.
    pub time: Timestamp,
    /// Hash of the record before it. In the first record, a value that is derived from the log's id.
    pub previous: Hash,
    /// Hash of this record's canonical bytes.
    pub hash: Hash,
    pub event: Event,
}

impl Record {
    /// Returns this record as the end of a log.
    pub fn head(&self) -> Head {
        Head { sequence: self.sequence, hash: self.hash }
    }
}

/// The end of a log at some moment.
///
/// If it is kept elsewhere, it proves later that no record up to it was cut off or rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Sequence number of the last record.
    pub sequence: u64,
    /// Hash of the last record.
    pub hash: Hash,
}
