//! Push subscriptions of reviewers, sealed. `notices` has the form of their records.

use rusqlite::params;

use super::{Store, StoreError};

/// Returns the context for sealing a subscription.
fn place(id: &str) -> String {
    format!("push subscription {id}")
}

impl Store {
    /// Adds a subscription, or replaces its record.
    pub fn put_push_subscription(&self, id: &str, record: &str) -> Result<(), StoreError> {
        let sealed = self.0.seal.seal(&place(id), record.as_bytes())?;
        let query = "INSERT OR REPLACE INTO push_subscriptions (subscription_id, sealed) VALUES (?1, ?2)";
        self.lock().execute(query, params![id, sealed])?;
        Ok(())
    }

    pub fn delete_push_subscription(&self, id: &str) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM push_subscriptions WHERE subscription_id = ?1", [id])?;
        Ok(())
    }

    /// Returns the records of all subscriptions, oldest first.
    pub fn push_subscriptions(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let connection = self.lock();
        let query = "SELECT subscription_id, sealed FROM push_subscriptions ORDER BY subscription_id";
        let mut statement = connection.prepare(query)?;
        let rows =
            statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        rows.map(|row| {
            let (id, sealed) = row?;
            Ok(self.0.seal.unseal(&place(&id), &sealed)?)
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{OutcomeBounds, Store};

    #[test]
    fn subscriptions_are_sealed_and_survive_reopening_until_they_are_deleted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("store.db");
        {
            let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
            for (id, record) in [("a", "https-hidden-1"), ("b", "https-hidden-2"), ("a", "https-hidden-3")] {
                store.put_push_subscription(id, record).unwrap();
            }
            store.delete_push_subscription("b").unwrap();
        }
        for file in std::fs::read_dir(place.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(12).any(|part| part == b"https-hidden"));
        }
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.push_subscriptions().unwrap(), [b"https-hidden-3"]);
        store.lock().execute("UPDATE push_subscriptions SET subscription_id = 'c'", []).unwrap();
        assert!(store.push_subscriptions().is_err(), "a record opens in its own place alone");
    }
}
