//! Records about the log itself: its keys, its checkpoints, and the removal of segments.

use std::path::Path;

use serde_json::json;

use super::{AppendError, Writer};
use crate::checkpoint::Checkpoint;
use crate::event::{Event, Kind};
use crate::record::Record;
use crate::removal::{self, Removal};
use crate::signer::{Signer, SignerError};

/// Reason why the key was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RotateError {
    /// The new key could not be created, or could not replace the old one.
    #[error(transparent)]
    Key(#[from] SignerError),
    /// The change could not be recorded.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl Writer {
    /// Opens this log's key in the file `path`, or creates one there (mode 0600), and records it if it is not the key in force.
    ///
    /// If the log knows another key, no key vouches for the new one.
    pub fn signer(&mut self, path: &Path) -> Result<Signer, RotateError> {
        let in_force = self.ledger.key();
        let signer = Signer::open(path, self.log_id(), in_force.as_ref())?;
        if in_force.as_ref() != Some(signer.verifier_key()) {
            let details = json!({ "key": signer.verifier_key().to_string() });
            self.append(&Event::new(Kind::AuditKey).details(details))?;
        }
        Ok(signer)
    }

    /// Switches to a new key for which the old one vouches, and makes a checkpoint with the old key before and with the new key after it.
    ///
    /// Returns the checkpoint of the new key. The writer is poisoned if the new key is recorded and cannot be used.
    pub fn rotate(&mut self, signer: &mut Signer) -> Result<Option<Checkpoint>, RotateError> {
        self.checkpoint(signer)?;
        let (next, note) = signer.prepare()?;
        let details = json!({ "key": next.to_string(), "note": note });
        self.append(&Event::new(Kind::AuditKey).details(details))?;
        if let Err(error) = signer.switch() {
            // The log names the new key already, so a signature of the old one would be damage.
            self.poison = Some("changing its key".to_owned());
            return Err(error.into());
        }
        Ok(self.checkpoint(signer)?)
    }

    /// Switches to the key in force if `signer` has another one. Call it after the log was opened again.
    ///
    /// The record of a new key may be on disk although its append or the switch failed.
    pub fn resume_signer(&mut self, signer: &mut Signer) -> Result<(), RotateError> {
        if self.ledger.key().as_ref() != Some(signer.verifier_key()) {
            *signer = self.signer(signer.path())?;
        }
        Ok(())
    }

    /// Signs all records so far, stores the checkpoint beside the segments, and records it. Returns `None` if no record was added since the
    /// last checkpoint.
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

    /// Returns the number of records after the last checkpoint, without the record of that checkpoint.
    pub fn unsigned(&self) -> u64 {
        self.head().map_or(0, |head| head.sequence - self.ledger.anchored())
    }

    /// Returns the number of records, from the first on, that a recorded checkpoint covers.
    pub fn covered(&self) -> u64 {
        self.ledger.anchored().saturating_sub(1)
    }

    /// Records that the oldest segments are removed, with the state from which the log can be verified without them.
    ///
    /// [`crate::sweep`] deletes them afterwards, and never before.
    pub fn remove(&mut self, removal: &Removal) -> Result<Record, AppendError> {
        let record = self.append(&Event::new(Kind::SegmentsRemoved).details(removal.details()))?;
        self.storage.store(removal::FILE, &self.lines).map_err(|source| {
            // The record remains but has no effect. The next removal supersedes it.
            AppendError::Io { doing: "keeping the record of a removal", source }
        })?;
        Ok(record)
    }
}
