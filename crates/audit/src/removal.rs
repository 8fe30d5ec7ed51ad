//! The record that the oldest segments were removed. A reader of the remaining ones begins to verify from it.
//!
//! The record `segments_removed` names the last removed record and contains everything that is needed to continue: the last hash, the tree
//! and the keys. The file `removed` is a copy of its line, so that a verifier does not have to search for it. The record itself must be in
//! the log, with the same hash, after the removed records.

use serde_json::{Value, json};

use crate::canonical::{self, Envelope};
use crate::event::{Event, Kind};
use crate::ledger::{Frontier, Ledger};
use crate::record::Head;

/// Name of the file in the log's directory.
pub(crate) const FILE: &str = "removed";

/// Segments to be removed, verified up to their last record.
#[derive(Debug, Clone)]
pub struct Removal {
    pub(crate) frontier: Frontier,
    pub(crate) first_sequence: u64,
    pub(crate) segments: usize,
}

impl Removal {
    /// Returns the sequence number of the last record to be removed.
    pub fn last_sequence(&self) -> u64 {
        self.frontier.last_sequence
    }

    pub(crate) fn details(&self) -> Value {
        let mut details = json!({ "first_sequence": self.first_sequence, "segments": self.segments });
        // Cannot fail, because the struct contains only texts and numbers.
        if let (Value::Object(details), Ok(Value::Object(frontier))) =
            (&mut details, serde_json::to_value(&self.frontier))
        {
            details.extend(frontier);
        }
        details
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Removed {
    /// State from which the log continues.
    pub(crate) ledger: Ledger,
    /// Sequence number of the last removed record.
    pub(crate) last_sequence: u64,
    /// Record of the removal.
    pub(crate) record: Head,
}

impl Removed {
    /// Parses the file `removed`. Returns `None` if it is not a record of a removal.
    pub(crate) fn parse(file: &[u8]) -> Option<Self> {
        let line = file.strip_suffix(b"\n")?;
        let Envelope { log, sequence, hash, .. } = canonical::open(line).ok()?;
        let event: Event = serde_json::from_slice(line).ok()?;
        let frontier: Frontier = serde_json::from_value(event.details?).ok()?;
        let ledger = Ledger::behind(&frontier)?;
        let valid = event.kind == Kind::SegmentsRemoved
            && ledger.chain.log() == Some(log)
            && frontier.last_sequence < sequence;
        valid.then_some(Self {
            ledger,
            last_sequence: frontier.last_sequence,
            record: Head { sequence, hash },
        })
    }
}
