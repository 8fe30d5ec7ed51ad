//! API tokens: their records, which contain no secret.

use identity::ApiToken;
use rusqlite::params;
use timestamp::UnixMillis;

use super::{Store, StoreError};

/// Number of ended tokens that are kept for display.
const OVER: u32 = 10_000;

impl Store {
    /// Adds a token, or records its end. The oldest ended ones are removed if there are too many.
    pub fn put_api_token(&self, token: &ApiToken, now: UnixMillis) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let end = token.ended.as_ref().map_or(token.expires_at, |ended| ended.at.min(token.expires_at));
        transaction.execute(
            "INSERT OR REPLACE INTO api_tokens (token_id, ends_at, record) VALUES (?1, ?2, ?3)",
            params![token.id.to_string(), signed(end), serde_json::to_string(token)?],
        )?;
        transaction.execute(
            "DELETE FROM api_tokens WHERE token_id IN (
                 SELECT token_id FROM api_tokens WHERE ends_at <= ?1
                 ORDER BY token_id DESC LIMIT -1 OFFSET ?2)",
            params![signed(now), OVER],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns all tokens, including ended ones.
    pub fn api_tokens(&self) -> Result<Vec<ApiToken>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT record FROM api_tokens ORDER BY token_id")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
    }
}

/// Converts to SQLite's signed numbers.
fn signed(at: UnixMillis) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use identity::{ApiToken, ApiTokenEnded, Roles, TokenId};
    use timestamp::UnixMillis;

    use super::OVER;
    use crate::database::{OutcomeBounds, Store};

    fn token(expires_at: u64) -> ApiToken {
        let id = TokenId::new();
        ApiToken {
            id,
            name: "ci".into(),
            roles: Roles::all(),
            profiles: vec![],
            runs: vec![],
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            created_by: "uid:0".into(),
            uid: 0,
            gid: 0,
            created_at: UnixMillis(1),
            expires_at: UnixMillis(expires_at),
            ended: None,
            hash: ApiToken::issue(id).1,
        }
    }

    #[test]
    fn tokens_survive_reopening_and_so_does_their_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let (one, other) = (token(200), token(300));
        let ended = ApiToken {
            ended: Some(ApiTokenEnded { by: "uid:0".into(), at: UnixMillis(50) }),
            ..other.clone()
        };
        {
            let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
            for token in [&one, &other, &ended] {
                store.put_api_token(token, UnixMillis(100)).unwrap();
            }
        }
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.api_tokens().unwrap(), [one, ended]);
    }

    #[test]
    fn the_oldest_ended_tokens_are_evicted_and_no_valid_one() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let (living, over) = (token(200), token(50));
        store.put_api_token(&living, UnixMillis(10)).unwrap();
        store.put_api_token(&over, UnixMillis(10)).unwrap();
        {
            let connection = store.lock();
            let many = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                        INSERT INTO api_tokens SELECT 'z' || i, 0, '{}' FROM n";
            connection.execute(many, [OVER]).unwrap();
        }
        store.put_api_token(&living, UnixMillis(100)).unwrap();
        let connection = store.lock();
        let ids = connection.prepare("SELECT count(*) FROM api_tokens WHERE token_id = ?1");
        let mut ids = ids.unwrap();
        let mut has =
            |token: &ApiToken| ids.query_row([token.id.to_string()], |row| row.get::<_, u32>(0)).unwrap();
        assert_eq!((has(&living), has(&over)), (1, 0));
    }
}
