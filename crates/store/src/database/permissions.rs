//! Permissions that operators granted and revoked.

use gateway::Permission;
use rusqlite::params;
use timestamp::UnixMillis;

use super::{Store, StoreError};

/// Number of ended permissions that are kept for display.
const OVER: u32 = 10_000;

impl Store {
    /// Adds a permission, or records its end. The oldest ended ones are removed if there are too many.
    pub fn put_permission(&self, permission: &Permission, now: UnixMillis) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let end = permission.ended.as_ref().map(|ended| ended.at.0);
        let end = [end, permission.expires_at.map(|at| at.0)].into_iter().flatten().min();
        transaction.execute(
            "INSERT OR REPLACE INTO permissions (permission_id, ends_at, record) VALUES (?1, ?2, ?3)",
            params![permission.id, end.map(signed), serde_json::to_string(permission)?],
        )?;
        transaction.execute(
            "DELETE FROM permissions WHERE permission_id IN (
                 SELECT permission_id FROM permissions WHERE ends_at <= ?1
                 ORDER BY permission_id DESC LIMIT -1 OFFSET ?2)",
            params![signed(now.0), OVER],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the permissions that are in force at this time.
    pub fn permissions_in_force(&self, now: UnixMillis) -> Result<Vec<Permission>, StoreError> {
        let connection = self.lock();
        let mut statement =
            connection.prepare("SELECT record FROM permissions WHERE ends_at IS NULL OR ends_at > ?1")?;
        let rows = statement.query_map([signed(now.0)], |row| row.get::<_, String>(0))?;
        rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
    }

    /// Returns at most `most` permissions older than `before`, newest first.
    ///
    /// With `since`, only those that were in force at that time or later. Otherwise ended ones are included.
    pub fn permissions(
        &self,
        before: Option<&str>,
        since: Option<UnixMillis>,
        most: usize,
    ) -> Result<Vec<Permission>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT record FROM permissions
             WHERE (?1 IS NULL OR permission_id < ?1) AND (?2 IS NULL OR ends_at IS NULL OR ends_at > ?2)
             ORDER BY permission_id DESC LIMIT ?3",
        )?;
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let since = since.map(|since| signed(since.0));
        let rows = statement.query_map(params![before, since, most], |row| row.get::<_, String>(0))?;
        rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
    }
}

/// Converts to SQLite's signed numbers.
fn signed(millis: u64) -> i64 {
    i64::try_from(millis).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use gateway::{Effect, Ended, Permission, Scope, Subject};
    use timestamp::UnixMillis;

    use crate::database::Store;

    fn permission(id: &str, expires_at: Option<u64>) -> Permission {
        Permission {
            id: id.into(),
            effect: Effect::Grant,
            subject: Subject::Agent("alice".into()),
            scope: Scope { operation: Some("write".into()), ..Scope::default() },
            preapproved: false,
            reason: "for a test".into(),
            by: "uid:0".into(),
            at: UnixMillis(1),
            expires_at: expires_at.map(UnixMillis),
            ended: None,
        }
    }

    #[test]
    fn permissions_survive_reopening_and_expire() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let now = UnixMillis(100);
        let (lasting, short, ended) =
            (permission("a", None), permission("b", Some(101)), permission("c", None));
        {
            let store = Store::open(&path, crate::database::OutcomeBounds::WIDE).unwrap();
            for permission in [&lasting, &short, &ended] {
                store.put_permission(permission, now).unwrap();
            }
            let end = Ended { by: "uid:0".into(), at: UnixMillis(50), reason: "over".into() };
            store.put_permission(&Permission { ended: Some(end), ..ended.clone() }, now).unwrap();
        }
        let store = Store::open(&path, crate::database::OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.permissions_in_force(now).unwrap(), [lasting.clone(), short.clone()]);
        assert_eq!(store.permissions_in_force(UnixMillis(101)).unwrap(), std::slice::from_ref(&lasting));
        let ids = |before, since, most| {
            let found = store.permissions(before, since, most).unwrap();
            found.into_iter().map(|permission| permission.id).collect::<Vec<_>>()
        };
        assert_eq!(ids(None, None, 10), ["c", "b", "a"]);
        assert_eq!(ids(None, Some(now), 10), ["b", "a"]);
        assert_eq!(ids(Some("b"), None, 10), ["a"]);
        assert_eq!(ids(None, None, 1), ["c"]);
    }
}
