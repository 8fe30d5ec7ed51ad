//! Approvals whose calls are over. They are kept so that later daemons can show them, too.
//!
//! They are sealed like waiting ones, because a preview contains the data that was written. The oldest are evicted for new ones. Deleting a
//! run deletes its approvals.

use rusqlite::params;

use super::{Store, StoreError};

/// Number of approvals that are kept, and their total size in bytes.
const MOST: u32 = 1_000;
const MOST_BYTES: u32 = 64 * 1024 * 1024;

/// A stored approval whose call is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledApproval {
    pub approval_id: String,
    pub run_id: String,
    /// Time at which it was settled, in milliseconds since 1970.
    pub at: u64,
    /// The approval as JSON.
    pub approval: Vec<u8>,
}

fn place(approval_id: &str) -> String {
    format!("settled approval {approval_id}")
}

impl Store {
    /// Stores a finished approval, and deletes the waiting call. It is kept as long as its run.
    pub fn settle_approval(&self, settled: &SettledApproval) -> Result<(), StoreError> {
        self.settle_within(settled, MOST, MOST_BYTES)
    }

    fn settle_within(&self, settled: &SettledApproval, most: u32, most_bytes: u32) -> Result<(), StoreError> {
        let SettledApproval { approval_id, run_id, at, approval } = settled;
        let sealed = self.0.seal.seal(&place(approval_id), approval)?;
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute("DELETE FROM approvals WHERE approval_id = ?1", [approval_id])?;
        transaction.execute(
            "INSERT OR REPLACE INTO settled_approvals (approval_id, run_id, settled_at, approval)
             SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM runs WHERE run_id = ?2)",
            params![approval_id, run_id, i64::try_from(*at).unwrap_or(i64::MAX), sealed],
        )?;
        transaction.execute(
            "DELETE FROM settled_approvals WHERE approval_id IN (
                 SELECT approval_id FROM (
                     SELECT approval_id, row_number() OVER newest AS number,
                            sum(length(approval)) OVER newest AS bytes
                     FROM settled_approvals WINDOW newest AS (ORDER BY settled_at DESC, approval_id DESC))
                 WHERE number > ?1 OR bytes > ?2)",
            params![most, most_bytes],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the stored approvals as JSON, oldest first. An approval that can no longer be read is skipped.
    pub fn settled_approvals(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT approval_id, approval FROM settled_approvals ORDER BY settled_at, approval_id",
        )?;
        let rows =
            statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, Vec<u8>>(1)?)))?;
        let mut settled = Vec::new();
        for row in rows {
            let (id, closed) = row?;
            settled.extend(self.0.seal.unseal(&place(&id), &closed).ok());
        }
        Ok(settled)
    }
}

#[cfg(test)]
mod tests {
    use super::{SettledApproval, Store};
    use crate::database::tests;

    const MOST: u32 = 10;
    const MOST_BYTES: u32 = 10_000;

    #[test]
    fn the_oldest_are_evicted_by_number_and_size_and_those_of_a_run_with_it() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("store.db");
        let store = Store::open(&path, crate::database::OutcomeBounds::WIDE).unwrap();
        let (run, other) = (tests::run(&store), tests::run(&store));
        let settle = |run: &str, at: u64, approval: &[u8]| {
            let (approval_id, run_id) = (format!("{run} {at:06}"), run.to_owned());
            let settled = SettledApproval { approval_id, run_id, at, approval: approval.to_vec() };
            store.settle_within(&settled, MOST, MOST_BYTES).unwrap();
        };
        let (id, other_id) = (run.to_string(), other.to_string());
        for number in 0..u64::from(MOST) + 5 {
            settle(&id, number, number.to_string().as_bytes());
        }
        let kept = store.settled_approvals().unwrap();
        assert_eq!((kept.len(), kept[0].as_slice()), (MOST as usize, b"5".as_slice()));
        settle("no such run", 99, b"x");
        for number in 100..103 {
            settle(&other_id, number, &[0; MOST_BYTES as usize / 2 - 100]);
        }
        assert_eq!(store.settled_approvals().unwrap().len(), 2, "two halves, and nothing older beside them");
        settle(&id, 200, b"hunter2");
        assert_eq!(store.settled_approvals().unwrap().last().unwrap(), b"hunter2");
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|part| part == b"hunter2"));
        }
        store.delete_run(other).unwrap();
        assert_eq!(store.settled_approvals().unwrap(), [b"hunter2"]);
    }
}
