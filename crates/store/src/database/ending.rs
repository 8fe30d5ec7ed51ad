//! Records that end: permissions that operators granted and revoked, and API tokens, of which no secret is stored.
//!
//! `gateway` has the form of a permission, `identity` that of a token.

use rusqlite::params;
use timestamp::UnixMillis;

use super::{Store, StoreError};

/// Number of ended records of each table that are kept for display.
const OVER: u32 = 10_000;

/// A record that ends, or does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub id: String,
    /// Time from which it no longer counts.
    pub ends_at: Option<UnixMillis>,
    /// The record as JSON.
    pub record: String,
}

impl Store {
    /// Adds a permission, or replaces it. The oldest ended ones are removed if there are too many.
    pub fn put_permission(&self, permission: &Ending, now: UnixMillis) -> Result<(), StoreError> {
        self.put(("permissions", "permission_id"), permission, now)
    }

    /// Adds an API token, or replaces it. The oldest ended ones are removed if there are too many.
    pub fn put_api_token(&self, token: &Ending, now: UnixMillis) -> Result<(), StoreError> {
        self.put(("api_tokens", "token_id"), token, now)
    }

    fn put(&self, (table, key): (&str, &str), one: &Ending, now: UnixMillis) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute(
            &format!("INSERT OR REPLACE INTO {table} ({key}, ends_at, record) VALUES (?1, ?2, ?3)"),
            params![one.id, one.ends_at.map(signed), one.record],
        )?;
        transaction.execute(
            &format!(
                "DELETE FROM {table} WHERE {key} IN (
                     SELECT {key} FROM {table} WHERE ends_at <= ?1 ORDER BY {key} DESC LIMIT -1 OFFSET ?2)"
            ),
            params![signed(now), OVER],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the records of the permissions that are in force at this time.
    pub fn permissions_in_force(&self, now: UnixMillis) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT record FROM permissions WHERE ends_at IS NULL OR ends_at > ?1", [signed(now)])
    }

    /// Returns the records of at most `most` permissions older than `before`, newest first.
    ///
    /// With `since`, only those that were in force at that time or later. Otherwise ended ones are included.
    pub fn permissions(
        &self,
        before: Option<&str>,
        since: Option<UnixMillis>,
        most: usize,
    ) -> Result<Vec<String>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.texts(
            "SELECT record FROM permissions
             WHERE (?1 IS NULL OR permission_id < ?1) AND (?2 IS NULL OR ends_at IS NULL OR ends_at > ?2)
             ORDER BY permission_id DESC LIMIT ?3",
            params![before, since.map(signed), most],
        )
    }

    /// Returns the records of all API tokens, including ended ones.
    pub fn api_tokens(&self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT record FROM api_tokens ORDER BY token_id", [])
    }
}

/// Converts to SQLite's signed numbers.
fn signed(at: UnixMillis) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use timestamp::UnixMillis;

    use super::{Ending, OVER};
    use crate::database::{OutcomeBounds, Store};

    fn ending(id: &str, ends_at: Option<u64>) -> Ending {
        Ending { id: id.to_owned(), ends_at: ends_at.map(UnixMillis), record: format!("{{{id}}}") }
    }

    #[test]
    fn permissions_survive_reopening_and_expire() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let now = UnixMillis(100);
        let ended = Ending { record: "{c, ended}".to_owned(), ..ending("c", Some(50)) };
        {
            let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
            for permission in [ending("a", None), ending("b", Some(101)), ending("c", None), ended] {
                store.put_permission(&permission, now).unwrap();
            }
        }
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.permissions_in_force(now).unwrap(), ["{a}", "{b}"]);
        assert_eq!(store.permissions_in_force(UnixMillis(101)).unwrap(), ["{a}"]);
        let listed = |before, since, most| store.permissions(before, since, most).unwrap();
        assert_eq!(listed(None, None, 10), ["{c, ended}", "{b}", "{a}"]);
        assert_eq!(listed(None, Some(now), 10), ["{b}", "{a}"]);
        assert_eq!(listed(Some("b"), None, 10), ["{a}"]);
        assert_eq!(listed(None, None, 1), ["{c, ended}"]);
    }

    #[test]
    fn tokens_survive_reopening_and_so_does_their_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let ended = Ending { record: "{b, ended}".to_owned(), ..ending("b", Some(50)) };
        {
            let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
            for token in [ending("a", Some(200)), ending("b", Some(300)), ended] {
                store.put_api_token(&token, UnixMillis(100)).unwrap();
            }
        }
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.api_tokens().unwrap(), ["{a}", "{b, ended}"]);
    }

    #[test]
    fn the_oldest_ended_tokens_are_evicted_and_no_valid_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let (living, over) = (ending("a", Some(200)), ending("b", Some(50)));
        store.put_api_token(&living, UnixMillis(10)).unwrap();
        store.put_api_token(&over, UnixMillis(10)).unwrap();
        {
            let connection = store.lock();
            let many = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                        INSERT INTO api_tokens SELECT 'z' || i, 0, '{}' FROM n";
            connection.execute(many, [OVER]).unwrap();
        }
        store.put_api_token(&living, UnixMillis(100)).unwrap();
        let tokens = store.api_tokens().unwrap();
        assert!(tokens.contains(&living.record) && !tokens.contains(&over.record));
    }
}
