//! The place in the audit log up to which everything has its end.

use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError};
use crate::recovery::Mark;

impl Store {
    /// The place, if one is kept that makes sense.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, StoreError> {
        let row: Option<(i64, String)> = self
            .lock()
            .query_row("SELECT sequence, hash FROM audit_mark", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        Ok(row.and_then(|(sequence, hash)| {
            Some(Mark { sequence: u64::try_from(sequence).ok()?, hash: hash.parse().ok()? })
        }))
    }

    /// Keeps another one in its place.
    pub(crate) fn set_mark(&self, mark: &Mark) -> Result<(), StoreError> {
        self.lock().execute(
            "INSERT OR REPLACE INTO audit_mark (one, sequence, hash) VALUES (1, ?1, ?2)",
            params![i64::try_from(mark.sequence).unwrap_or(i64::MAX), mark.hash.to_string()],
        )?;
        Ok(())
    }
}
