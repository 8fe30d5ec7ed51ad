//! Alerts, and the position in the audit log up to which it was scanned for them.

use identity::AlertId;
use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError};
use crate::alert::Alert;

impl Store {
    /// Returns all alerts, oldest first, and the sequence number of the last scanned record, which is 0 at first.
    pub fn alerts(&self) -> Result<(Vec<Alert>, u64), StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT record FROM alerts ORDER BY alert_id")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let alerts = rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect::<Result<_, StoreError>>()?;
        let position: Option<i64> =
            connection.query_row("SELECT sequence FROM alert_position", [], |row| row.get(0)).optional()?;
        Ok((alerts, position.and_then(|sequence| u64::try_from(sequence).ok()).unwrap_or(0)))
    }

    /// Writes alerts, removes others and moves the position, in one transaction.
    pub fn save_alerts(
        &self,
        alerts: &[Alert],
        removed: &[AlertId],
        position: u64,
    ) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        for alert in alerts {
            transaction.execute(
                "INSERT OR REPLACE INTO alerts (alert_id, record) VALUES (?1, ?2)",
                params![alert.id.to_string(), serde_json::to_string(alert)?],
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
