//! Position in the audit log up to which it was scanned for open entries, and these entries.

use audit::{Event, Hash};
use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError};

/// A position in the log: the number and hash of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub sequence: u64,
    pub hash: Hash,
}

/// A position in the log and the entries that were open there, so that a scan can continue without the records before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Marked {
    pub mark: Mark,
    /// Records that opened the entries, without their input.
    pub open: Vec<Event>,
}

impl Store {
    /// Returns the stored position, or `None` if there is none that can be read.
    pub fn mark(&self) -> Result<Option<Marked>, StoreError> {
        let row: Option<(i64, String, String)> = self
            .lock()
            .query_row("SELECT sequence, hash, open FROM audit_mark", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        let Some((sequence, hash, open)) = row else { return Ok(None) };
        let open: Vec<Event> = serde_json::from_str(&open)?;
        let (Ok(sequence), Ok(hash)) = (u64::try_from(sequence), hash.parse()) else { return Ok(None) };
        Ok(Some(Marked { mark: Mark { sequence, hash }, open }))
    }

    /// Replaces the stored position.
    pub fn set_mark(&self, Marked { mark, open }: &Marked) -> Result<(), StoreError> {
        self.lock().execute(
            "INSERT OR REPLACE INTO audit_mark (one, sequence, hash, open) VALUES (1, ?1, ?2, ?3)",
            params![
                i64::try_from(mark.sequence).unwrap_or(i64::MAX),
                mark.hash.to_string(),
                serde_json::to_string(open)?
            ],
        )?;
        Ok(())
    }
}
