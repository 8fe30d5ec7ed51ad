//! Runs, and the workspaces that outlive them.

use std::collections::{BTreeMap, BTreeSet};

use identity::RunId;
use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError, secrets};
use crate::run::{Kept, Record};

impl Store {
    /// Adds a run. `request` is the id and digest of the request that made it.
    pub fn insert_run(&self, record: &Record, request: Option<(&str, &[u8])>) -> Result<(), StoreError> {
        self.insert_run_with(record, request, &BTreeMap::new())
    }

    /// Adds a run like [`Self::insert_run`], with secret variables.
    pub fn insert_run_with(
        &self,
        record: &Record,
        request: Option<(&str, &[u8])>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        let (request_id, digest) = request.unzip();
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute(
            "INSERT INTO runs (run_id, request_id, request, record) VALUES (?1, ?2, ?3, ?4)",
            params![record.id.to_string(), request_id, digest, serde_json::to_string(record)?],
        )?;
        self.keep_secrets(&transaction, record.id, secrets)?;
        transaction.commit()?;
        Ok(())
    }

    /// Writes a run's new state. If the run has ended, its secrets are deleted.
    pub fn update_run(&self, record: &Record) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute(
            "UPDATE runs SET record = ?2 WHERE run_id = ?1",
            params![record.id.to_string(), serde_json::to_string(record)?],
        )?;
        if record.state.has_ended() {
            secrets::forget(&transaction, record.id)?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Deletes a run and the outcomes of its calls.
    pub fn delete_run(&self, id: RunId) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
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

    /// Returns all runs, oldest first.
    pub fn runs(&self) -> Result<Vec<Record>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT record FROM runs ORDER BY run_id")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
    }

    pub fn living_runs(&self) -> Result<BTreeSet<RunId>, StoreError> {
        let runs = self.runs()?;
        Ok(runs.into_iter().filter(|record| !record.state.has_ended()).map(|record| record.id).collect())
    }

    /// Returns the run that a request made, with that request's digest.
    pub fn run_by_request(&self, request_id: &str) -> Result<Option<(Record, Vec<u8>)>, StoreError> {
        let row: Option<(String, Vec<u8>)> = self
            .lock()
            .query_row("SELECT record, request FROM runs WHERE request_id = ?1", [request_id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .optional()?;
        row.map(|(record, digest)| Ok((serde_json::from_str(&record)?, digest))).transpose()
    }

    pub fn insert_workspace(&self, workspace: &Kept) -> Result<(), StoreError> {
        self.lock().execute(
            "INSERT OR REPLACE INTO workspaces (workspace_id, record) VALUES (?1, ?2)",
            params![workspace.id.to_string(), serde_json::to_string(workspace)?],
        )?;
        Ok(())
    }

    pub fn delete_workspace(&self, id: RunId) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM workspaces WHERE workspace_id = ?1", [id.to_string()])?;
        Ok(())
    }

    pub fn workspaces(&self) -> Result<Vec<Kept>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT record FROM workspaces")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.map(|row| Ok(serde_json::from_str(&row?)?)).collect()
    }
}
