//! Runs, and the workspaces that outlive them. `runs` has the form of their records.

use std::collections::BTreeMap;

use identity::RunId;
use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError, retired, secrets};

const INSERT_WORKSPACE: &str = "INSERT OR REPLACE INTO workspaces (workspace_id, record) VALUES (?1, ?2)";

impl Store {
    /// Adds a run, with its secret variables. `request` is the id and digest of the request that made it.
    ///
    /// The id of a run that was deleted is refused with [`StoreError::Retired`].
    pub fn insert_run(
        &self,
        id: RunId,
        record: &str,
        request: Option<(&str, &[u8])>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        self.insert_run_and_workspace(id, record, request, secrets, None)
    }

    /// Adds a run as [`Self::insert_run`] does, and the record of the workspace that is made for it. Both take one sync.
    pub fn insert_run_and_workspace(
        &self,
        id: RunId,
        record: &str,
        request: Option<(&str, &[u8])>,
        secrets: &BTreeMap<String, String>,
        workspace: Option<&str>,
    ) -> Result<(), StoreError> {
        let (request_id, digest) = request.unzip();
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let inserted = transaction.execute(
            "INSERT INTO runs (run_id, request_id, request, record) SELECT ?1, ?2, ?3, ?4
             WHERE NOT EXISTS (SELECT 1 FROM retired_ids WHERE run_id = ?1)",
            params![id.to_string(), request_id, digest, record],
        )?;
        if inserted == 0 {
            return Err(StoreError::Retired);
        }
        self.keep_secrets(&transaction, id, secrets)?;
        if let Some(workspace) = workspace {
            transaction.execute(INSERT_WORKSPACE, params![id.to_string(), workspace])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Writes a run's new record. If the run has ended, its secrets are deleted.
    pub fn update_run(&self, id: RunId, record: &str, has_ended: bool) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction
            .execute("UPDATE runs SET record = ?2 WHERE run_id = ?1", params![id.to_string(), record])?;
        if has_ended {
            secrets::forget(&transaction, id)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Deletes a run and the outcomes of its calls. Its id is free, as if it had never been.
    pub fn delete_run(&self, id: RunId) -> Result<(), StoreError> {
        self.delete(id, false)
    }

    /// Deletes a run and the outcomes of its calls. Its id is not that of another run later.
    pub fn retire_run(&self, id: RunId) -> Result<(), StoreError> {
        self.delete(id, true)
    }

    fn delete(&self, id: RunId, is_retired: bool) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        if is_retired {
            retired::retire(&transaction, id)?;
        }
        let mut room = self.room(&transaction);
        room.forget_run(id)?;
        let used = room.used;
        transaction.execute("DELETE FROM settled_approvals WHERE run_id = ?1", [id.to_string()])?;
        super::transcripts::forget(&transaction, id)?;
        secrets::forget(&transaction, id)?;
        transaction.execute("DELETE FROM runs WHERE run_id = ?1", [id.to_string()])?;
        transaction.commit()?;
        self.0.outcomes.set(used);
        Ok(())
    }

    /// Returns the records of all runs, oldest first.
    pub fn runs(&self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT record FROM runs ORDER BY run_id", [])
    }

    /// Returns the record of the run that a request made, with that request's digest.
    pub fn run_by_request(&self, request_id: &str) -> Result<Option<(String, Vec<u8>)>, StoreError> {
        let query = "SELECT record, request FROM runs WHERE request_id = ?1";
        let row = self.lock().query_row(query, [request_id], |row| Ok((row.get(0)?, row.get(1)?)));
        Ok(row.optional()?)
    }

    pub fn insert_workspace(&self, id: RunId, record: &str) -> Result<(), StoreError> {
        self.lock().execute(INSERT_WORKSPACE, params![id.to_string(), record])?;
        Ok(())
    }

    pub fn delete_workspace(&self, id: RunId) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM workspaces WHERE workspace_id = ?1", [id.to_string()])?;
        Ok(())
    }

    /// Returns the records of all workspaces.
    pub fn workspaces(&self) -> Result<Vec<String>, StoreError> {
        self.texts("SELECT record FROM workspaces", [])
    }
}
