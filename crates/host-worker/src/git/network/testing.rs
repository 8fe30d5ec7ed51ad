//! Trees of commits for tests.

use git2::{Index, IndexEntry, IndexTime, Oid, Repository, Tree};

/// Content that makes a submodule of a path.
pub(super) const SUBMODULE: &str = "submodule";

/// Makes a tree of these files, without the index of the repository.
pub(super) fn tree_of<'r>(repository: &'r Repository, files: &[(&str, &str)]) -> Tree<'r> {
    let mut index = Index::new().unwrap();
    for (path, content) in files {
        let (id, mode) = match *content {
            SUBMODULE => (Oid::from_str(&"5".repeat(40)).unwrap(), 0o160_000),
            content => (repository.blob(content.as_bytes()).unwrap(), 0o100_644),
        };
        let (time, path) = (IndexTime::new(0, 0), path.as_bytes().to_vec());
        let entry = IndexEntry {
            ctime: time,
            mtime: time,
            dev: 0,
            ino: 0,
            mode,
            uid: 0,
            gid: 0,
            file_size: 0,
            id,
            flags: 0,
            flags_extended: 0,
            path,
        };
        index.add(&entry).unwrap();
    }
    repository.find_tree(index.write_tree_to(repository).unwrap()).unwrap()
}
