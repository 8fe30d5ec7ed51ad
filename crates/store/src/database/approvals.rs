//! Calls that wait for a reviewer, and remembered consents, which have to survive a restart.
//!
//! Both are sealed, because they contain the data that the call would write and the beginning of its command. A row is deleted as soon as
//! its call is over, its run ends or its consent ends.

use rusqlite::params;

use super::{Store, StoreError};

/// A stored call that waits for a reviewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredApproval {
    pub approval_id: String,
    pub run_id: String,
    /// Sequence number of the record of the request. All records of decisions come later.
    pub after: u64,
    /// True if its consent was used or is void. No operation is executed for it again.
    pub spent: bool,
    /// The approval as requested, and the caller, as JSON.
    pub approval: Vec<u8>,
    /// The operation as a protocol message.
    pub operation: Vec<u8>,
}

/// Id of a remembered consent, and its JSON unless it can no longer be read.
pub(crate) type StoredConsent = (String, Option<Vec<u8>>);

fn place(what: &str, approval_id: &str) -> String {
    format!("{what} {approval_id}")
}

impl Store {
    /// Stores a waiting call.
    pub fn insert_approval(&self, stored: &StoredApproval) -> Result<(), StoreError> {
        let seal = |what, plain: &[u8]| self.0.seal.seal(&place(what, &stored.approval_id), plain);
        self.lock().execute(
            "INSERT INTO approvals (approval_id, run_id, after, spent, approval, operation)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![
                stored.approval_id,
                stored.run_id,
                i64::try_from(stored.after).unwrap_or(i64::MAX),
                stored.spent,
                seal("approval", &stored.approval)?,
                seal("approved operation", &stored.operation)?,
            ],
        )?;
        Ok(())
    }

    /// Marks a consent as used. Returns true if it was not marked before.
    pub fn spend_approval(&self, approval_id: &str) -> Result<bool, StoreError> {
        let query = "UPDATE approvals SET spent = 1 WHERE approval_id = ?1 AND spent = 0";
        Ok(self.lock().execute(query, [approval_id])? == 1)
    }

    /// Deletes a call that no longer waits.
    pub fn delete_approval(&self, approval_id: &str) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM approvals WHERE approval_id = ?1", [approval_id])?;
        Ok(())
    }

    /// Returns the waiting calls, oldest first, and the ids of those that can no longer be read.
    pub fn approvals(&self) -> Result<(Vec<StoredApproval>, Vec<String>), StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT approval_id, run_id, after, spent, approval, operation FROM approvals ORDER BY approval_id",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(StoredApproval {
                approval_id: row.get(0)?,
                run_id: row.get(1)?,
                after: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
                spent: row.get(3)?,
                approval: row.get(4)?,
                operation: row.get(5)?,
            })
        })?;
        let (mut stored, mut unreadable) = (Vec::new(), Vec::new());
        for row in rows {
            let row = row?;
            let open = |what, closed: &[u8]| self.0.seal.unseal(&place(what, &row.approval_id), closed);
            match (open("approval", &row.approval), open("approved operation", &row.operation)) {
                (Ok(approval), Ok(operation)) => {
                    stored.push(StoredApproval { approval, operation, ..row });
                }
                _ => unreadable.push(row.approval_id),
            }
        }
        Ok((stored, unreadable))
    }

    /// Stores a consent that is remembered. `consent` is JSON.
    pub fn insert_consent(&self, id: &str, run: &str, consent: &[u8]) -> Result<(), StoreError> {
        self.lock().execute(
            "INSERT INTO consents (consent_id, run_id, consent) VALUES (?1, ?2, ?3)",
            params![id, run, self.0.seal.seal(&place("consent", id), consent)?],
        )?;
        Ok(())
    }

    pub fn delete_consent(&self, id: &str) -> Result<(), StoreError> {
        self.lock().execute("DELETE FROM consents WHERE consent_id = ?1", [id])?;
        Ok(())
    }

    /// Returns the remembered consents, oldest first.
    pub fn consents(&self) -> Result<Vec<StoredConsent>, StoreError> {
        let connection = self.lock();
        let mut statement =
            connection.prepare("SELECT consent_id, consent FROM consents ORDER BY consent_id")?;
        let rows =
            statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        rows.map(|row| {
            let (id, closed) = row?;
            let consent = self.0.seal.unseal(&place("consent", &id), &closed).ok();
            Ok((id, consent))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Store, StoredApproval};

    fn stored(id: &str) -> StoredApproval {
        StoredApproval {
            approval_id: id.to_owned(),
            run_id: "r".to_owned(),
            after: 7,
            spent: false,
            approval: b"{\"preview\":\"hunter2\"}".to_vec(),
            operation: b"hunter2".to_vec(),
        }
    }

    #[test]
    fn pending_approval_is_sealed_and_spent_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        {
            let store = Store::open(&path, crate::database::OutcomeBounds::WIDE).unwrap();
            store.insert_approval(&stored("a")).unwrap();
            store.insert_approval(&stored("b")).unwrap();
            assert!(store.insert_approval(&stored("a")).is_err(), "there is one of each");
            assert!(store.spend_approval("a").unwrap());
            assert!(!store.spend_approval("a").unwrap() && !store.spend_approval("c").unwrap());
            store.insert_consent("k", "r", b"hunter2").unwrap();
        }
        for entry in std::fs::read_dir(directory.path()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|part| part == b"hunter2"));
        }
        let store = Store::open(&path, crate::database::OutcomeBounds::WIDE).unwrap();
        let spent = StoredApproval { spent: true, ..stored("a") };
        assert_eq!(store.approvals().unwrap(), (vec![spent, stored("b")], vec![]));
        assert_eq!(store.consents().unwrap(), [("k".to_owned(), Some(b"hunter2".to_vec()))]);
        store.delete_approval("a").unwrap();
        store.delete_consent("k").unwrap();
        assert_eq!(store.approvals().unwrap().0, [stored("b")]);
        assert!(store.consents().unwrap().is_empty());
    }

    #[test]
    fn approval_moved_to_another_row_is_not_read() {
        let directory = tempfile::tempdir().unwrap();
        let store =
            Store::open(&directory.path().join("store.db"), crate::database::OutcomeBounds::WIDE).unwrap();
        store.insert_approval(&stored("a")).unwrap();
        store.lock().execute("UPDATE approvals SET approval_id = 'b'", []).unwrap();
        assert_eq!(store.approvals().unwrap(), (vec![], vec!["b".to_owned()]));
    }
}
