//! Secret variables of runs, sealed. They are deleted when their run ends, because no command starts in it again.

use std::collections::BTreeMap;

use identity::RunId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Store, StoreError};

/// Returns the context for sealing the variables.
fn place(run: RunId) -> String {
    format!("variables of run {run}")
}

impl Store {
    /// Returns the secret variables of a run, by name.
    pub fn secrets(&self, run: RunId) -> Result<BTreeMap<String, String>, StoreError> {
        let sealed: Option<Vec<u8>> = self
            .lock()
            .query_row("SELECT sealed FROM run_secrets WHERE run_id = ?1", [run.to_string()], |row| {
                row.get(0)
            })
            .optional()?;
        let Some(sealed) = sealed else { return Ok(BTreeMap::new()) };
        Ok(serde_json::from_slice(&self.0.seal.unseal(&place(run), &sealed)?)?)
    }

    /// Stores the variables in the transaction that makes their run.
    pub(super) fn keep_secrets(
        &self,
        connection: &Connection,
        run: RunId,
        secrets: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        if !secrets.is_empty() {
            let sealed = self.0.seal.seal(&place(run), &serde_json::to_vec(secrets)?)?;
            let insert = "INSERT INTO run_secrets (run_id, sealed) VALUES (?1, ?2)";
            connection.execute(insert, params![run.to_string(), sealed])?;
        }
        Ok(())
    }

    /// Returns a digest of a request that contains secrets.
    ///
    /// It is keyed, so a reader of the database without the key cannot test guessed values against it.
    pub fn fingerprint(&self, content: &[u8]) -> Vec<u8> {
        self.0.seal.fingerprint("request", content).to_vec()
    }

    /// Returns bytes that follow from a content and the installation's key (HMAC-SHA256), the same ones under each daemon.
    ///
    /// Contents of different purposes have independent bytes.
    pub fn derived(&self, purpose: &str, content: &[u8]) -> [u8; 32] {
        self.0.seal.fingerprint(purpose, content)
    }
}

/// Deletes the variables of a run that has ended.
pub(super) fn forget(connection: &Connection, run: RunId) -> Result<(), StoreError> {
    connection.execute("DELETE FROM run_secrets WHERE run_id = ?1", [run.to_string()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use identity::RunId;

    use super::super::tests::run;
    use super::super::{OutcomeBounds, Store};

    #[test]
    fn secrets_are_sealed_outlive_the_daemon_and_are_removed_with_their_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let secrets = BTreeMap::from([("TOKEN".to_owned(), "hunter2-hunter2".to_owned())]);
        let (run, other) = (RunId::new(), RunId::new());
        {
            let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
            store.insert_run(run, "{}", None, &secrets).unwrap();
            store.insert_run(other, "{}", None, &secrets).unwrap();
            store.update_run(run, "{}", false).unwrap();
        }
        for file in std::fs::read_dir(directory.path()).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            assert!(!bytes.windows(7).any(|part| part == b"hunter2"));
        }
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.secrets(run).unwrap(), secrets);
        store.update_run(run, "{}", true).unwrap();
        assert_eq!(store.secrets(run).unwrap(), BTreeMap::new());
        assert_eq!(store.secrets(other).unwrap(), secrets, "of another run");
        store.delete_run(other).unwrap();
        assert_eq!(store.secrets(other).unwrap(), BTreeMap::new());
    }

    #[test]
    fn secrets_open_for_their_own_run_alone() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let other = run(&store);
        let secrets = BTreeMap::from([("TOKEN".to_owned(), "x".to_owned())]);
        store.insert_run(RunId::new(), "{}", None, &secrets).unwrap();
        let swap = "UPDATE run_secrets SET run_id = ?1";
        store.lock().execute(swap, [other.to_string()]).unwrap();
        assert!(store.secrets(other).is_err());
    }
}
