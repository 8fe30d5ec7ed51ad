//! Alerts, and the position in the audit log up to which it was scanned for them. `anomaly` has the form of their records.

use identity::AlertId;
use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError};

impl Store {
    /// Returns the records of all alerts, oldest first, and the sequence number of the last scanned record, which is 0 at first.
    pub fn alerts(&self) -> Result<(Vec<String>, u64), StoreError> {
        let alerts = self.texts("SELECT record FROM alerts ORDER BY alert_id", [])?;
        let query = "SELECT sequence FROM alert_position";
        let position: Option<i64> = self.lock().query_row(query, [], |row| row.get(0)).optional()?;
        Ok((alerts, position.and_then(|sequence| u64::try_from(sequence).ok()).unwrap_or(0)))
    }

    /// Writes alerts, removes others and moves the position, in one transaction.
    pub fn save_alerts(
        &self,
        alerts: &[(AlertId, String)],
        removed: &[AlertId],
        position: u64,
    ) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        for (id, record) in alerts {
            transaction.execute(
                "INSERT OR REPLACE INTO alerts (alert_id, record) VALUES (?1, ?2)",
                params![id.to_string(), record],
            )?;
        }
        for id in removed {
            transaction.execute("DELETE FROM alerts WHERE alert_id = ?1", [id.to_string()])?;
        }
        let position = i64::try_from(position).unwrap_or(i64::MAX);
        transaction
            .execute("INSERT OR REPLACE INTO alert_position (one, sequence) VALUES (1, ?1)", [position])?;
        transaction.commit()?;
        Ok(())
    }
}
