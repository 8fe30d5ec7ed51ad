//! Policies that have been in force, by digest, so that the basis of a recorded decision can be shown later.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension as _, params};

use super::{Store, StoreError};

/// Number of policies that are kept: the last ones that came into force.
const MOST: u32 = 1_000;

impl Store {
    /// Stores a policy in its canonical form as the last one that came into force.
    pub fn put_policy(&self, digest: &str, canonical: &str) -> Result<(), StoreError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute("DELETE FROM policies WHERE digest = ?1", [digest])?;
        transaction
            .execute("INSERT INTO policies (digest, canonical) VALUES (?1, ?2)", [digest, canonical])?;
        transaction.execute(
            "DELETE FROM policies WHERE place <= (SELECT max(place) FROM policies) - ?1",
            params![MOST],
        )?;
        transaction.commit()?;
        Ok(())
    }

    /// Returns the stored policies with these digests, in their canonical form.
    pub fn policies(&self, digests: &[String]) -> Result<BTreeMap<String, String>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT canonical FROM policies WHERE digest = ?1")?;
        let mut found = BTreeMap::new();
        for digest in digests {
            if let Some(canonical) = statement.query_row([digest], |row| row.get(0)).optional()? {
                found.insert(digest.clone(), canonical);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Store};

    #[test]
    fn the_last_policies_are_kept_by_their_digest() {
        let directory = tempfile::tempdir().unwrap();
        let store =
            Store::open(&directory.path().join("store.db"), crate::database::OutcomeBounds::WIDE).unwrap();
        let put = |n: u32| store.put_policy(&n.to_string(), &format!("{{{n}}}")).unwrap();
        let has = |n: u32| store.policies(&[n.to_string()]).unwrap().remove(&n.to_string());
        put(0);
        put(1);
        // In force again: it is the newest then.
        put(0);
        (2..=MOST).for_each(put);
        assert_eq!((has(0), has(1)), (Some("{0}".to_owned()), None));
        assert_eq!(has(MOST), Some(format!("{{{MOST}}}")));
        assert!(store.policies(&["none".to_owned()]).unwrap().is_empty());
    }
}
