//! Passkeys of reviewers. `passkeys` has the form of their records.

use rusqlite::params;

use super::{Store, StoreError};

impl Store {
    /// Adds a passkey, or replaces its record.
    pub fn put_passkey(&self, credential_id: &str, record: &str) -> Result<(), StoreError> {
        let query = "INSERT OR REPLACE INTO passkeys (credential_id, record) VALUES (?1, ?2)";
        self.lock().execute(query, params![credential_id, record])?;
        Ok(())
    }

    pub fn delete_passkey(&self, credential_id: &str) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM passkeys WHERE credential_id = ?1", [credential_id])?;
        Ok(())
    }

    /// Returns the records of all passkeys.
    pub fn passkeys(&self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT record FROM passkeys ORDER BY credential_id", [])
    }
}

#[cfg(test)]
mod tests {
    use crate::{OutcomeBounds, Store};

    #[test]
    fn passkeys_survive_reopening_until_they_are_deleted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("store.db");
        {
            let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
            for (id, record) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "4")] {
                store.put_passkey(id, record).unwrap();
            }
            store.delete_passkey("c").unwrap();
        }
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.passkeys().unwrap(), ["3", "2"]);
    }
}
