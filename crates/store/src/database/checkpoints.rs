//! Checkpoints of runs. `checkpoints` has the form of their records.

use identity::CheckpointId;
use rusqlite::params;

use super::{Store, StoreError};

impl Store {
    pub fn insert_checkpoint(&self, id: CheckpointId, record: &str) -> Result<(), StoreError> {
        let query = "INSERT INTO checkpoints (checkpoint_id, record) VALUES (?1, ?2)";
        self.lock().execute(query, params![id.to_string(), record])?;
        Ok(())
    }

    /// Replaces the record of a checkpoint, if it exists.
    pub fn change_checkpoint(&self, id: CheckpointId, record: &str) -> Result<(), StoreError> {
        let query = "UPDATE checkpoints SET record = ?2 WHERE checkpoint_id = ?1";
        self.lock().execute(query, params![id.to_string(), record])?;
        Ok(())
    }

    pub fn delete_checkpoint(&self, id: CheckpointId) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM checkpoints WHERE checkpoint_id = ?1", [id.to_string()])?;
        Ok(())
    }

    /// Returns the records of all checkpoints, oldest first.
    pub fn checkpoints(&self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT record FROM checkpoints ORDER BY checkpoint_id", [])
    }
}

#[cfg(test)]
mod tests {
    use identity::CheckpointId;

    use crate::{OutcomeBounds, Store};

    #[test]
    fn checkpoints_are_kept_until_they_are_deleted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("store.db");
        let (first, second) = (CheckpointId::new(), CheckpointId::new());
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        store.insert_checkpoint(second, "2").unwrap();
        store.insert_checkpoint(first, "1").unwrap();
        assert!(store.insert_checkpoint(first, "1").is_err(), "an id is used once");
        drop(store);
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.checkpoints().unwrap(), ["1", "2"]);
        store.delete_checkpoint(first).unwrap();
        assert_eq!(store.checkpoints().unwrap(), ["2"]);
    }
}
