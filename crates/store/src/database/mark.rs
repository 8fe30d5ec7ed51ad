//! Position in the audit log up to which it was scanned for open entries, and these entries.

use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError};

/// A position in the log and the entries that were open there, so that a scan can continue without the records before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMark {
    /// Number of the record at the position.
    pub sequence: u64,
    /// Hash of that record, in hex.
    pub hash: String,
    /// Records that opened the entries, as JSON.
    pub open: String,
}

impl Store {
    /// Returns the stored position, if there is one.
    pub fn mark(&self) -> Result<Option<StoredMark>, StoreError> {
        let query = "SELECT sequence, hash, open FROM audit_mark";
        let row = self.lock().query_row(query, [], |row| {
            let sequence = u64::try_from(row.get::<_, i64>(0)?).unwrap_or(0);
            Ok(StoredMark { sequence, hash: row.get(1)?, open: row.get(2)? })
        });
        Ok(row.optional()?)
    }

    /// Replaces the stored position.
    pub fn set_mark(&self, mark: &StoredMark) -> Result<(), StoreError> {
        let sequence = i64::try_from(mark.sequence).unwrap_or(i64::MAX);
        self.lock().execute(
            "INSERT OR REPLACE INTO audit_mark (one, sequence, hash, open) VALUES (1, ?1, ?2, ?3)",
            params![sequence, mark.hash, mark.open],
        )?;
        Ok(())
    }
}
