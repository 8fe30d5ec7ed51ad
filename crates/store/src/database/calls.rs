//! Outcomes of finished calls. Their number is limited in `bound.rs`.

use std::collections::HashSet;

use identity::{CallId, RunId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Store, StoreError};

/// A stored finished call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredCall {
    pub call_id: CallId,
    pub run_id: RunId,
    pub principal: String,
    pub request_id: Option<String>,
    /// Digest of the request. It distinguishes a repetition from another request with the same id.
    pub request: Vec<u8>,
    /// The encoded response.
    pub response: Vec<u8>,
    /// True if a client may look for it: it has a request id, or a reviewer was asked.
    pub promised: bool,
}

/// Makes an encoded response shorter where there is no room: it returns the response without its result.
pub type Bare = fn(&[u8]) -> Vec<u8>;

/// Returns the context for sealing an outcome, which contains data that the call read and output of its command.
pub(super) fn place(call: CallId) -> String {
    format!("outcome {call}")
}

impl Store {
    /// Stores finished calls, except those whose run has been deleted. They survive a crash of the machine.
    pub fn insert_calls(&self, calls: &[StoredCall], bare: Bare) -> Result<(), StoreError> {
        self.insert(&mut self.lock(), calls, bare)
    }

    /// Stores finished calls without a sync. They survive a crash of the daemon; later writes bring them to the disk.
    ///
    /// A separate sync would delay the sync of the audit log, for which calls wait.
    pub fn insert_calls_unsynced(&self, calls: &[StoredCall], bare: Bare) -> Result<(), StoreError> {
        let mut connection = self.lock();
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let inserted = self.insert(&mut connection, calls, bare);
        connection.pragma_update(None, "synchronous", "FULL")?;
        inserted
    }

    fn insert(
        &self,
        connection: &mut Connection,
        calls: &[StoredCall],
        bare: Bare,
    ) -> Result<(), StoreError> {
        let transaction = connection.transaction()?;
        let mut room = self.room(&transaction);
        let lives = "SELECT 1 FROM runs WHERE run_id = ?1";
        for call in calls {
            if !transaction.prepare_cached(lives)?.exists([call.run_id.to_string()])? {
                continue;
            }
            room.replace(call.call_id)?;
            if let Some((response, keeps)) = room.make(call, bare)? {
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO calls (call_id, run_id, principal, request_id, request, response, settled_at, keeps)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?;
                insert.execute(params![
                    call.call_id.to_string(),
                    call.run_id.to_string(),
                    call.principal,
                    call.request_id,
                    call.request,
                    response,
                    room.now,
                    keeps
                ])?;
            }
        }
        let used = room.used;
        transaction.commit()?;
        self.0.outcomes.set(used);
        Ok(())
    }

    pub fn call(&self, id: CallId) -> Result<Option<StoredCall>, StoreError> {
        self.find("call_id = ?1 AND ?2 IS NULL", &id.to_string(), None)
    }

    /// Returns the ids of all stored calls.
    pub fn call_ids(&self) -> Result<HashSet<CallId>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT call_id FROM calls")?;
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        let ids = rows.filter_map(|row| row.map(|id| CallId::parse(&id).ok()).transpose());
        Ok(ids.collect::<Result<_, _>>()?)
    }

    /// Returns the finished call that a request made in a run.
    pub fn call_by_request(&self, run: RunId, request_id: &str) -> Result<Option<StoredCall>, StoreError> {
        self.find("run_id = ?1 AND request_id = ?2", &run.to_string(), Some(request_id))
    }

    fn find(
        &self,
        condition: &str,
        first: &str,
        second: Option<&str>,
    ) -> Result<Option<StoredCall>, StoreError> {
        let query = format!(
            "SELECT call_id, run_id, principal, request_id, request, response, keeps FROM calls WHERE {condition}"
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
                    row.get::<_, u8>(6)?,
                ))
            })
            .optional()?;
        let Some((call_id, run_id, principal, request_id, request, response, keeps)) = row else {
            return Ok(None);
        };
        // The daemon only writes ids that can be parsed. A row with another id is no valid call.
        let (Ok(call_id), Ok(run_id)) = (CallId::parse(&call_id), RunId::parse(&run_id)) else {
            return Ok(None);
        };
        let response: Vec<u8> = response;
        let response = self.0.seal.unseal(&place(call_id), &response)?;
        let promised = keeps > 0;
        Ok(Some(StoredCall { call_id, run_id, principal, request_id, request, response, promised }))
    }
}
