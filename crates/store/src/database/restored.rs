//! Records of trees that did not come along with a backup.

use super::{Store, StoreError};

/// A kind of record that is about a directory with the name of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trees {
    Workspaces,
    Bases,
    Checkpoints,
}

impl Store {
    /// Deletes the records whose ids `is_there` refuses, and returns the number of them.
    pub fn retain_trees(&self, trees: Trees, is_there: impl Fn(&str) -> bool) -> Result<usize, StoreError> {
        let (query, delete) = match trees {
            Trees::Workspaces => {
                ("SELECT workspace_id FROM workspaces", "DELETE FROM workspaces WHERE workspace_id = ?1")
            }
            Trees::Bases => ("SELECT base_id FROM bases", "DELETE FROM bases WHERE base_id = ?1"),
            Trees::Checkpoints => {
                ("SELECT checkpoint_id FROM checkpoints", "DELETE FROM checkpoints WHERE checkpoint_id = ?1")
            }
        };
        let mut gone = self.texts(query, [])?;
        gone.retain(|id| !is_there(id));
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        for id in &gone {
            transaction.execute(delete, [id])?;
        }
        transaction.commit()?;
        Ok(gone.len())
    }
}

#[cfg(test)]
mod tests {
    use identity::BaseId;

    use super::*;
    use crate::OutcomeBounds;

    #[test]
    fn only_records_of_trees_that_are_there_stay() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let (there, gone) = (BaseId::new(), BaseId::new());
        store.insert_base(there, "there").unwrap();
        store.insert_base(gone, "gone").unwrap();
        let deleted = store.retain_trees(Trees::Bases, |id| id == there.to_string()).unwrap();
        assert_eq!((deleted, store.bases().unwrap()), (1, vec!["there".to_owned()]));
        assert_eq!(store.retain_trees(Trees::Workspaces, |_| false).unwrap(), 0);
        assert_eq!(store.retain_trees(Trees::Checkpoints, |_| false).unwrap(), 0);
    }
}
