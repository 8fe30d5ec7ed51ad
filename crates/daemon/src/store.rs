//! What has to outlive the daemon beside the audit log: runs, and the outcomes of calls. SQLite in WAL mode.
//!
//! Calls into here block on the disk: from async code they go through [`Store::with`].

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::ids::{CallId, RunId};
use crate::runs::{Kept, Record};

/// The schema, by `PRAGMA user_version`.
const SCHEMA: &str = "
CREATE TABLE runs (
    run_id     TEXT PRIMARY KEY,
    request_id TEXT,
    request    BLOB,
    record     TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX runs_by_request ON runs (request_id) WHERE request_id IS NOT NULL;
CREATE TABLE calls (
    call_id    TEXT PRIMARY KEY,
    run_id     TEXT NOT NULL,
    principal  TEXT NOT NULL,
    request_id TEXT,
    request    BLOB NOT NULL,
    response   BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX calls_by_request ON calls (run_id, request_id) WHERE request_id IS NOT NULL;
";

/// What version 2 has more.
const SCHEMA_2: &str = "
CREATE TABLE workspaces (
    workspace_id TEXT PRIMARY KEY,
    record       TEXT NOT NULL
) STRICT;
PRAGMA user_version = 2;
";

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("the store failed")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the store holds a record that cannot be read")]
    Record(#[from] serde_json::Error),
    #[error("the store is of a later version ({0}) than this daemon")]
    Newer(u32),
    #[error("the store's task ended")]
    Task,
}

impl StoreError {
    /// Somebody else has taken the id meanwhile.
    pub(crate) fn is_conflict(&self) -> bool {
        use rusqlite::ErrorCode::ConstraintViolation;
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ConstraintViolation))
    }
}

/// A finished call, as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredCall {
    pub(crate) call_id: CallId,
    pub(crate) run_id: RunId,
    pub(crate) principal: String,
    pub(crate) request_id: Option<String>,
    /// Digest of the request, to tell a repetition from another request under the same id.
    pub(crate) request: Vec<u8>,
    /// The encoded `CallResponse`.
    pub(crate) response: Vec<u8>,
}

/// A handle on the store; cheap to clone.
#[derive(Clone)]
pub(crate) struct Store(Arc<Mutex<Connection>>);

impl Store {
    /// Opens or makes the database at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, StoreError> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // A run or an outcome that was answered survives a crash of the machine, too.
        connection.pragma_update(None, "synchronous", "FULL")?;
        match connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0))? {
            0 => connection.execute_batch(&format!("BEGIN;{SCHEMA}{SCHEMA_2}COMMIT;"))?,
            1 => connection.execute_batch(&format!("BEGIN;{SCHEMA_2}COMMIT;"))?,
            2 => {}
            newer => return Err(StoreError::Newer(newer)),
        }
        Ok(Self(Arc::new(Mutex::new(connection))))
    }

    /// Runs `job` where blocking is allowed.
    pub(crate) async fn with<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    {
        let store = self.clone();
        tokio::task::spawn_blocking(move || job(&store)).await.map_err(|_| StoreError::Task)?
    }

    /// Adds a run. `request` is the id and digest of the request that made it.
    pub(crate) fn insert_run(
        &self,
        record: &Record,
        request: Option<(&str, &[u8])>,
    ) -> Result<(), StoreError> {
        let (request_id, digest) = request.unzip();
        self.lock().execute(
            "INSERT INTO runs (run_id, request_id, request, record) VALUES (?1, ?2, ?3, ?4)",
            params![record.id.to_string(), request_id, digest, serde_json::to_string(record)?],
        )?;
        Ok(())
    }

    /// Writes a run's new state.
    pub(crate) fn update_run(&self, record: &Record) -> Result<(), StoreError> {
        self.lock().execute(
            "UPDATE runs SET record = ?2 WHERE run_id = ?1",
            params![record.id.to_string(), serde_json::to_string(record)?],
        )?;
        Ok(())
    }

    /// Forgets a run and the outcomes of its calls.
    pub(crate) fn delete_run(&self, id: RunId) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute("DELETE FROM calls WHERE run_id = ?1", [id.to_string()])?;
        transaction.execute("DELETE FROM runs WHERE run_id = ?1", [id.to_string()])?;
        transaction.commit()?;
        Ok(())
    }

    /// All runs, oldest first.
    pub(crate) fn runs(&self) -> Result<Vec<Record>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT record FROM runs ORDER BY run_id")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
    }

    /// The run that a request made, with that request's digest.
    pub(crate) fn run_by_request(&self, request_id: &str) -> Result<Option<(Record, Vec<u8>)>, StoreError> {
        let row: Option<(String, Vec<u8>)> = self
            .lock()
            .query_row("SELECT record, request FROM runs WHERE request_id = ?1", [request_id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        row.map(|(record, digest)| Ok((serde_json::from_str(&record)?, digest))).transpose()
    }

    /// Adds a workspace that is kept.
    pub(crate) fn insert_workspace(&self, workspace: &Kept) -> Result<(), StoreError> {
        self.lock().execute(
            "INSERT OR REPLACE INTO workspaces (workspace_id, record) VALUES (?1, ?2)",
            params![workspace.id.to_string(), serde_json::to_string(workspace)?],
        )?;
        Ok(())
    }

    /// Forgets one.
    pub(crate) fn delete_workspace(&self, id: RunId) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM workspaces WHERE workspace_id = ?1", [id.to_string()])?;
        Ok(())
    }

    /// All workspaces that are kept.
    pub(crate) fn workspaces(&self) -> Result<Vec<Kept>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT record FROM workspaces")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
    }

    /// Keeps a finished call, unless its run has been deleted meanwhile.
    pub(crate) fn insert_call(&self, call: &StoredCall) -> Result<(), StoreError> {
        self.lock().execute(
            "INSERT OR REPLACE INTO calls (call_id, run_id, principal, request_id, request, response)
             SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM runs WHERE run_id = ?2)",
            params![
                call.call_id.to_string(),
                call.run_id.to_string(),
                call.principal,
                call.request_id,
                call.request,
                call.response
            ],
        )?;
        Ok(())
    }

    /// A finished call.
    pub(crate) fn call(&self, id: CallId) -> Result<Option<StoredCall>, StoreError> {
        self.find("call_id = ?1 AND ?2 IS NULL", &id.to_string(), None)
    }

    /// The finished calls that there are.
    pub(crate) fn call_ids(&self) -> Result<HashSet<CallId>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT call_id FROM calls")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let ids = rows.filter_map(|row| row.map(|id| CallId::parse(&id).ok()).transpose());
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// The finished call that a request made in a run.
    pub(crate) fn call_by_request(
        &self,
        run: RunId,
        request_id: &str,
    ) -> Result<Option<StoredCall>, StoreError> {
        self.find("run_id = ?1 AND request_id = ?2", &run.to_string(), Some(request_id))
    }

    fn find(
        &self,
        condition: &str,
        first: &str,
        second: Option<&str>,
    ) -> Result<Option<StoredCall>, StoreError> {
        let query = format!(
            "SELECT call_id, run_id, principal, request_id, request, response FROM calls WHERE {condition}"
        );
        let row = self
            .lock()
            .query_row(&query, params![first, second], |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get(2)?,
                    row.get(3)?,
                    row.get(4)?,
                    row.get(5)?,
                ))
            })
            .optional()?;
        let Some((call_id, run_id, principal, request_id, request, response)) = row else { return Ok(None) };
        // Ids are written by us in the form that parses; a database that says otherwise holds no such call.
        let (Ok(call_id), Ok(run_id)) = (CallId::parse(&call_id), RunId::parse(&run_id)) else {
            return Ok(None);
        };
        Ok(Some(StoredCall { call_id, run_id, principal, request_id, request, response }))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::{Store, StoredCall};
    use crate::ids::{CallId, RunId};
    use crate::runs::{Limits, Record, Spec, State, Workspace};

    pub(crate) fn record() -> Record {
        let spec = Spec {
            profile: "review".into(),
            image: String::new(),
            workspace: Workspace::Managed,
            pkg_path: None,
            agent_id: "alice".into(),
            role: "worker".into(),
            limits: Limits::default(),
            ttl: None,
            idle_timeout: None,
            labels: BTreeMap::new(),
            principal: "uid:0".into(),
        };
        Record::new(RunId::new(), spec)
    }

    #[test]
    fn runs_and_calls_survive_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let mut run = record();
        let call = StoredCall {
            call_id: CallId::new(),
            run_id: run.id,
            principal: "uid:0".into(),
            request_id: Some("r1".into()),
            request: vec![1, 2],
            response: vec![3],
        };
        {
            let store = Store::open(&path).unwrap();
            store.insert_run(&run, Some(("q", b"digest"))).unwrap();
            run.state = State::Ready;
            store.update_run(&run).unwrap();
            store.insert_call(&call).unwrap();
        }
        let store = Store::open(&path).unwrap();
        assert_eq!(store.runs().unwrap(), [run.clone()]);
        assert_eq!(store.run_by_request("q").unwrap(), Some((run.clone(), b"digest".to_vec())));
        assert_eq!(store.run_by_request("other").unwrap(), None);
        assert_eq!(store.call(call.call_id).unwrap(), Some(call.clone()));
        assert_eq!(store.call_ids().unwrap(), [call.call_id].into());
        assert_eq!(store.call_by_request(run.id, "r1").unwrap(), Some(call.clone()));
        assert_eq!(store.call_by_request(RunId::new(), "r1").unwrap(), None);
        store.delete_run(run.id).unwrap();
        assert_eq!(store.call(call.call_id).unwrap(), None);
        store.insert_call(&call).unwrap();
        assert_eq!(store.call(call.call_id).unwrap(), None, "one that comes after its run has gone");
        assert!(store.runs().unwrap().is_empty());
    }
}
