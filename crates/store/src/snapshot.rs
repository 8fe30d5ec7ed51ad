//! Snapshots of databases, for backups.

#![expect(clippy::disallowed_methods, reason = "a file in the daemon's own directory for backups")]

use std::fs::File;
use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::StoreError;

/// Copies the database at `path` as it is at one moment. Writers go on meanwhile.
///
/// The copy is made as `to`, which must not exist, and has no name when this function returns. It was checked as a whole.
pub fn snapshot(path: &Path, to: &Path) -> Result<File, StoreError> {
    let made = copy(path, to);
    if made.is_err() {
        // A part of a copy is useless. The first error counts.
        let _ = std::fs::remove_file(to);
    }
    made
}

fn copy(path: &Path, to: &Path) -> Result<File, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let name = to.to_str().ok_or_else(|| StoreError::Copy(std::io::ErrorKind::InvalidFilename.into()))?;
    Connection::open_with_flags(path, flags)?.execute("VACUUM INTO ?1", [name])?;
    let copy = Connection::open_with_flags(to, flags)?;
    let found: String = copy.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    drop(copy);
    if found != "ok" {
        return Err(StoreError::Damaged);
    }
    let file = File::open(to).map_err(StoreError::Copy)?;
    std::fs::remove_file(to).map_err(StoreError::Copy)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::copy as copy_to;

    use identity::RunId;

    use super::*;
    use crate::{OutcomeBounds, Store};

    #[test]
    fn a_snapshot_is_a_whole_store_while_the_store_is_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("store.db");
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        let run = RunId::new();
        store.insert_run(run, "{READY}", None, &BTreeMap::new()).unwrap();
        let mut file = snapshot(&path, &place.path().join("copy.db")).unwrap();
        store.insert_run(RunId::new(), "{later}", None, &BTreeMap::new()).unwrap();
        assert!(!place.path().join("copy.db").exists(), "it has no name");
        let other = tempfile::tempdir().unwrap();
        std::fs::copy(place.path().join("seal.key"), other.path().join("seal.key")).unwrap();
        copy_to(&mut file, &mut File::create(other.path().join("store.db")).unwrap()).unwrap();
        let copied = Store::open(&other.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        assert_eq!(copied.runs().unwrap(), ["{READY}"]);
    }

    #[test]
    fn a_file_that_is_there_is_not_replaced() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("store.db");
        let _store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        let to = place.path().join("copy.db");
        std::fs::write(&to, "not a database, and not empty").unwrap();
        assert!(snapshot(&path, &to).is_err());
    }
}
