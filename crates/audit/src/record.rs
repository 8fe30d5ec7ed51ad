//! A recorded event: its place in the chain, and the proof of it.

use crate::event::Event;
use crate::hash::{Hash, LogId};
use timestamp::Timestamp;

/// An event that is in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    pub log: LogId,
    /// Its place, from 1, without gaps.
    pub sequence: u64,
    /// When it was written, by the wall clock.
    pub time: Timestamp,
    /// The hash of the record before it; of the first one, the log's own beginning.
    pub previous: Hash,
    /// The hash of this record's canonical bytes.
    pub hash: Hash,
    pub event: Event,
}

impl Record {
    /// This record as the end of a log.
    pub fn head(&self) -> Head {
        Head { sequence: self.sequence, hash: self.hash }
    }
}

/// The end of a log at some moment. Kept elsewhere, it later proves that nothing up to it was cut off or rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last record's place.
    pub sequence: u64,
    /// The last record's hash.
    pub hash: Hash,
}
