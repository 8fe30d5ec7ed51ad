//! The place in the audit log up to which it was read for what has no end, and what that is.

use audit::{Event, Hash};
use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError};

/// A place in the log: a record, by its number and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub sequence: u64,
    pub hash: Hash,
}

/// A place in the log, and what was open there: enough to go on without what stands before it.
#[derive(Debug, Clone, PartialEq)]
pub struct Marked {
    pub mark: Mark,
    /// The records that opened it, without their input.
    pub open: Vec<Event>,
}

impl Store {
    /// The place, if one is kept that makes sense.
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

    /// Keeps another one in its place.
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
