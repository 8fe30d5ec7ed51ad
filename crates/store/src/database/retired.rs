//! Ids of runs that were deleted, so that none is that of another run later.
//!
//! A client may choose the id of a run, and may know those of others. If a second run had the id of a first, a handle on the first would lead
//! to the second, and their records would be mixed. Ids are kept for as long as a client may choose them.

use identity::RunId;
use rusqlite::{Transaction, params};
use timestamp::UnixMillis;

use super::StoreError;

/// Most ids that are kept. The oldest go first.
const MOST: u32 = 200_000;
/// Most ids that are removed when one is added. More than one, so that a table with old ones becomes small.
const AT_ONCE: u32 = 16;

/// Keeps the id of a run that is deleted.
pub(super) fn retire(transaction: &Transaction<'_>, id: RunId) -> Result<(), StoreError> {
    retire_within(transaction, id, UnixMillis::now(), MOST)
}

fn retire_within(
    transaction: &Transaction<'_>,
    id: RunId,
    now: UnixMillis,
    most: u32,
) -> Result<(), StoreError> {
    let until = i64::try_from(id.chosen_until()).unwrap_or(i64::MAX);
    transaction.execute(
        "INSERT OR REPLACE INTO retired_ids (run_id, until) VALUES (?1, ?2)",
        params![id.to_string(), until],
    )?;
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    transaction.execute(
        "DELETE FROM retired_ids WHERE place IN (SELECT place FROM retired_ids ORDER BY place LIMIT ?1)
         AND (until < ?2 OR place <= (SELECT max(place) FROM retired_ids) - ?3)",
        params![AT_ONCE, now, most],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::database::{OutcomeBounds, Store, tests};

    #[test]
    fn the_id_of_a_deleted_run_is_not_that_of_another_one_and_that_of_a_refused_run_is_free() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        let (deleted, refused) = (tests::run(&store), tests::run(&store));
        store.retire_run(deleted).unwrap();
        store.delete_run(refused).unwrap();
        drop(store);
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        let insert = |id| store.insert_run(id, "{}", None, &BTreeMap::new());
        assert!(matches!(insert(deleted), Err(StoreError::Retired)));
        assert!(store.runs().unwrap().is_empty());
        insert(refused).unwrap();
    }

    #[test]
    fn ids_are_kept_while_they_may_be_chosen_and_within_a_bound() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let ids: Vec<RunId> = (0..10).map(|_| RunId::new()).collect();
        let kept = || store.texts("SELECT run_id FROM retired_ids ORDER BY place", []).unwrap();
        let retire = |id: RunId, now: u64, most: u32| {
            let mut connection = store.lock();
            let transaction = connection.transaction().unwrap();
            retire_within(&transaction, id, UnixMillis(now), most).unwrap();
            transaction.commit().unwrap();
        };
        for id in &ids {
            retire(*id, ids[0].chosen_until(), 4);
        }
        let last: Vec<String> = ids[6..].iter().map(ToString::to_string).collect();
        assert_eq!(kept(), last);
        // The same one again, after the others are over.
        retire(ids[9], ids[9].chosen_until() + 1, 4);
        assert_eq!(kept(), [""; 0], "those that no client may choose any longer are gone");
    }
}
