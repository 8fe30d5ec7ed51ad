//! Finds the files in the way of a pull: those that it would write, and that are not as the commit has them.
//!
//! A dry run of libgit2's checkout finds none of them. The checkout itself refuses such files once more.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::Path;

use git2::{Delta, Diff, Repository, Tree};

use super::super::error::GitError;
use super::super::formats::{new_path, old_path};
use super::super::index::{self, as_path};
use super::super::quote::quoted;
use super::super::{compare, diff};
use super::lfs::excerpt;

const DIRECTORY: i32 = 0o040_000;

/// Refuses the pull if any of these changes would overwrite something.
pub(super) fn demand_clean(
    repository: &Repository,
    old: Option<&Tree<'_>>,
    changes: &Diff<'_>,
) -> Result<(), GitError> {
    let mut written: Vec<&[u8]> =
        changes.deltas().flat_map(|delta| [old_path(&delta), new_path(&delta)]).collect();
    written.retain(|path| !path.is_empty());
    let mut dirty = staged(repository, old, &written)?;
    dirty.extend(changed(repository, changes, &written)?);
    dirty.extend(in_the_way(repository, changes)?);
    if dirty.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = dirty.iter().map(|path| quoted(path)).collect();
    Err(GitError::Overwrites(excerpt(&names)))
}

/// Returns the paths that are staged with other content than the commit has.
fn staged(
    repository: &Repository,
    old: Option<&Tree<'_>>,
    written: &[&[u8]],
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let index = repository.index()?;
    let is_staged = |path: &&&[u8]| {
        let committed = old.and_then(|tree| tree.get_path(as_path(path)).ok());
        let committed = committed.filter(|entry| entry.filemode() != DIRECTORY);
        let committed =
            committed.map(|entry| (entry.id(), u32::try_from(entry.filemode()).unwrap_or_default()));
        let here = index::merged(&index, path).map(|entry| (entry.id, entry.mode));
        here != committed
    };
    Ok(written.iter().filter(is_staged).map(|path| path.to_vec()).collect())
}

/// Returns the tracked files whose content differs from the index.
fn changed(
    repository: &Repository,
    changes: &Diff<'_>,
    written: &[&[u8]],
) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let mut options = compare::changes();
    for path in written {
        options.pathspec(*path);
    }
    let (written, removed): (HashSet<&[u8]>, _) = (written.iter().copied().collect(), removed(changes));
    let files = diff::work_tree(repository, None, options)?;
    let is_in_the_way = |path: &[u8], status: Delta| {
        let is_gone_anyway = status == Delta::Deleted && removed.contains(path);
        written.contains(path) && !is_gone_anyway
    };
    let paths = files.deltas().filter(|delta| is_in_the_way(new_path(delta), delta.status()));
    Ok(paths.map(|delta| new_path(&delta).to_vec()).collect())
}

/// Returns the files and directories, tracked by nothing, where the pull would create a file or a directory.
fn in_the_way(repository: &Repository, changes: &Diff<'_>) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let workdir = repository.workdir().ok_or(GitError::NoRepository)?;
    let kind =
        |path: &[u8]| fs::symlink_metadata(workdir.join(as_path(path))).ok().map(|found| found.is_dir());
    let removed = removed(changes);
    let leaves = |path: &[u8]| {
        let beneath = [path, b"/"].concat();
        removed.contains(path) || removed.iter().any(|gone| gone.starts_with(&beneath))
    };
    let (mut found, mut seen) = (BTreeSet::new(), HashSet::new());
    for delta in changes.deltas().filter(|delta| delta.status() == Delta::Added) {
        let path = new_path(&delta);
        if kind(path).is_some() && !leaves(path) {
            found.insert(path.to_vec());
        }
        let above = as_path(path).ancestors().skip(1).filter(|above| *above != Path::new(""));
        for above in above.map(bytes) {
            if seen.insert(above.to_vec()) && kind(above) == Some(false) && !leaves(above) {
                found.insert(above.to_vec());
            }
        }
    }
    Ok(found)
}

/// Returns the paths that the pull removes.
fn removed<'d>(changes: &'d Diff<'_>) -> HashSet<&'d [u8]> {
    changes.deltas().filter(|delta| delta.status() == Delta::Deleted).map(|delta| old_path(&delta)).collect()
}

fn bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

#[cfg(test)]
mod tests {
    use git2::build::CheckoutBuilder;
    use tempfile::TempDir;

    use super::super::testing::tree_of;
    use super::*;

    struct World {
        place: TempDir,
        repository: Repository,
    }

    impl World {
        /// A repository whose branch and files are those of `files`.
        fn at(files: &[(&str, &str)]) -> Self {
            let place = tempfile::tempdir().unwrap();
            let repository = Repository::init(place.path()).unwrap();
            let world = Self { place, repository };
            let tree = tree_of(&world.repository, files);
            let who = git2::Signature::now("a", "a@example.org").unwrap();
            world.repository.commit(Some("HEAD"), &who, &who, "m", &tree, &[]).unwrap();
            world.repository.checkout_head(Some(CheckoutBuilder::new().force())).unwrap();
            drop(tree);
            world
        }

        /// Returns the names of the files in the way of a pull to these files.
        fn dirty(&self, files: &[(&str, &str)]) -> String {
            let (old, new) =
                (self.repository.head().unwrap().peel_to_tree().unwrap(), tree_of(&self.repository, files));
            let options = Some(&mut compare::changes());
            let changes = self.repository.diff_tree_to_tree(Some(&old), Some(&new), options).unwrap();
            match demand_clean(&self.repository, Some(&old), &changes) {
                Ok(()) => String::new(),
                Err(GitError::Overwrites(names)) => names,
                Err(error) => panic!("{error}"),
            }
        }

        fn write(&self, path: &str, content: &str) {
            let path = self.place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn remove(&self, path: &str) {
            fs::remove_file(self.place.path().join(path)).unwrap();
        }
    }

    const OLD: &[(&str, &str)] = &[("a", "1\n"), ("d/c", "1\n"), ("gone", "1\n"), ("same", "1\n")];
    const NEW: &[(&str, &str)] = &[("a", "2\n"), ("d/c", "1\n"), ("e/new", "2\n"), ("same", "1\n")];

    #[test]
    fn each_kind_of_change_is_in_the_way() {
        let world = World::at(OLD);
        assert_eq!(world.dirty(NEW), "");
        world.write("same", "changed beside\n");
        world.write("mine", "not tracked\n");
        assert_eq!(world.dirty(NEW), "");

        world.write("a", "22 of mine\n");
        world.write("gone", "also changed\n");
        assert_eq!(world.dirty(NEW), "a\ngone");
        world.write("a", "1\n");
        world.remove("gone");
        assert_eq!(world.dirty(NEW), "", "a file that the pull removes may be gone");

        world.write("e/new", "not tracked\n");
        assert_eq!(world.dirty(NEW), "e/new");
        world.write(".gitignore", "e/\n");
        assert_eq!(world.dirty(NEW), "e/new", "an ignored file is somebody's, too");
        fs::remove_dir_all(world.place.path().join("e")).unwrap();
        world.write("e", "a file in place of a directory\n");
        assert_eq!(world.dirty(NEW), "e");
        world.remove("e");
        fs::create_dir(world.place.path().join("e")).unwrap();
        assert_eq!(world.dirty(NEW), "");

        world.remove("a");
        assert_eq!(world.dirty(NEW), "a");
    }

    #[test]
    fn a_staged_change_is_in_the_way() {
        let world = World::at(OLD);
        let mut index = world.repository.index().unwrap();
        world.write("a", "staged\n");
        index.add_path(Path::new("a")).unwrap();
        index.remove_path(Path::new("gone")).unwrap();
        index.write().unwrap();
        world.write("a", "1\n");
        assert_eq!(world.dirty(NEW), "a\ngone");
    }

    #[test]
    fn a_file_and_a_directory_may_take_each_other_s_place() {
        let world = World::at(OLD);
        assert_eq!(world.dirty(&[("a/b", "2\n"), ("d", "2\n"), ("gone", "1\n"), ("same", "1\n")]), "");
    }
}
