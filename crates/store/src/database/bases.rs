//! Bases. `bases` has the form of their records.

use identity::BaseId;
use rusqlite::params;

use super::{Store, StoreError};

impl Store {
    pub fn insert_base(&self, id: BaseId, record: &str) -> Result<(), StoreError> {
        let query = "INSERT INTO bases (base_id, record) VALUES (?1, ?2)";
        self.lock().execute(query, params![id.to_string(), record])?;
        Ok(())
    }

    /// Writes the new record of a base, unless it was deleted.
    pub fn update_base(&self, id: BaseId, record: &str) -> Result<(), StoreError> {
        let query = "UPDATE bases SET record = ?2 WHERE base_id = ?1";
        self.lock().execute(query, params![id.to_string(), record])?;
        Ok(())
    }

    pub fn delete_base(&self, id: BaseId) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM bases WHERE base_id = ?1", [id.to_string()])?;
        Ok(())
    }

    /// Returns the records of all bases, oldest first.
    pub fn bases(&self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT record FROM bases ORDER BY base_id", [])
    }
}

#[cfg(test)]
mod tests {
    use identity::BaseId;

    use crate::{OutcomeBounds, Store};

    #[test]
    fn a_deleted_base_is_not_written_again() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let (first, second) = (BaseId::new(), BaseId::new());
        store.insert_base(first, "1").unwrap();
        store.insert_base(second, "2").unwrap();
        assert!(store.insert_base(first, "1").is_err(), "an id is used once");
        store.update_base(second, "3").unwrap();
        store.delete_base(first).unwrap();
        store.update_base(first, "4").unwrap();
        assert_eq!(store.bases().unwrap(), ["3"]);
    }
}
