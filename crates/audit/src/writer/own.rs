//! What the log records of itself: its keys, its checkpoints, and what was removed from it.

use std::path::Path;

use serde_json::json;

use super::{AppendError, Writer};
use crate::checkpoint::Checkpoint;
use crate::event::{Event, Kind};
use crate::record::Record;
use crate::removal::{self, Removal};
use crate::signer::{Signer, SignerError};

/// Why the key was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RotateError {
    /// The new key could not be made, or not be put in the old one's place.
    #[error(transparent)]
    Key(#[from] SignerError),
    /// The change could not be recorded.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Writer {
    /// Opens this log's key in the file `path`, or makes one there (mode 0600), and has the log name it. A key that the
    /// log does not know, though it knows another, is named without anybody vouching for it.
    pub fn signer(&mut self, path: &Path) -> Result<Signer, RotateError> {
        let in_force = self.ledger.key();
        let signer = Signer::open(path, self.log_id(), in_force.as_ref())?;
        if in_force.as_ref() != Some(signer.verifier_key()) {
            let details = json!({ "key": signer.verifier_key().to_string() });
            self.append(&Event::new(Kind::AuditKey).details(details))?;
        }
        Ok(signer)
    }

    /// Goes over to a new key, for which the old one vouches, with a checkpoint of each around it. Gives the new one's.
    pub fn rotate(&mut self, signer: &mut Signer) -> Result<Option<Checkpoint>, RotateError> {
        self.checkpoint(signer)?;
        let (next, note) = signer.prepare()?;
        let details = json!({ "key": next.to_string(), "note": note });
        self.append(&Event::new(Kind::AuditKey).details(details))?;
        signer.switch()?;
        Ok(self.checkpoint(signer)?)
    }

    /// Signs everything up to here, keeps the checkpoint beside the segments, and puts it on record. `None`: nothing came
    /// since the last one.
    pub fn checkpoint(&mut self, signer: &Signer) -> Result<Option<Checkpoint>, AppendError> {
        if let Some(cause) = &self.poison {
            return Err(AppendError::Poisoned(cause.clone()));
        }
        if self.unsigned() == 0 {
            return Ok(None);
        }
        let checkpoint = signer.checkpoint(self.ledger.tree());
        self.storage
            .store(&Checkpoint::file_name(checkpoint.size), checkpoint.note.as_bytes())
            .map_err(|source| AppendError::Io { doing: "keeping a checkpoint", source })?;
        let details = json!({ "size": checkpoint.size, "note": checkpoint.note });
        self.append(&Event::new(Kind::Checkpoint).details(details))?;
        Ok(Some(checkpoint))
    }

    /// Records after the last checkpoint, its own record not counted.
    pub fn unsigned(&self) -> u64 {
        self.head().map_or(0, |head| head.sequence - self.ledger.anchored())
    }

    /// The first so many records are covered by a checkpoint on record.
    pub fn covered(&self) -> u64 {
        self.ledger.anchored().saturating_sub(1)
    }

    /// Puts on record that the oldest segments go, from where the log can be proved without them. They are removed by
    /// [`crate::sweep`] afterwards, and not before.
    pub fn remove(&mut self, removal: &Removal) -> Result<Record, AppendError> {
        let record = self.append(&Event::new(Kind::SegmentsRemoved).details(removal.details()))?;
        self.storage.store(removal::FILE, &self.lines).map_err(|source| {
            // The record stands, and nothing follows from it: the next removal supersedes it.
            AppendError::Io { doing: "keeping the record of a removal", source }
        })?;
        Ok(record)
    }
}
