//! Brings the files of the work tree from one tree to another, or changes none of them.
//!
//! libgit2 writes the files, as for a clone: the mounts of the jail follow no link, so a race leads it nowhere else. A file that
//! has local changes, also one that git ignores, is never written: the call names it and ends before the first write.

use std::os::unix::ffi::OsStrExt as _;

use git2::build::CheckoutBuilder;
use git2::{CheckoutNotificationType, Delta, Diff, ErrorCode, Repository, Tree};
use jail::{Access, Jail, SandboxPath};
use operations::Bounds;

use super::super::error::{GitError, shown};
use super::super::formats::{new_path, old_path};
use super::super::quote::quoted;
use super::super::withheld;
use super::lfs::excerpt;

/// Largest file that is written, bytes: its object must fit the limits of the process.
const LARGEST: u64 = 128 * 1024 * 1024;

/// Checks each path and the size of the files that would be written. Returns the paths.
pub(super) fn check(
    repository: &Repository,
    jail: &Jail,
    diff: &Diff<'_>,
    bounds: &Bounds,
) -> Result<Vec<Vec<u8>>, GitError> {
    let objects = repository.odb()?;
    let mut paths = Vec::new();
    let mut left = bounds.max_transfer_bytes;
    for delta in diff.deltas() {
        for path in [old_path(&delta), new_path(&delta)] {
            if !path.is_empty() && paths.last().is_none_or(|last: &Vec<u8>| last != path) {
                demand_writable(jail, path)?;
                paths.push(path.to_vec());
            }
        }
        if delta.status() == Delta::Deleted {
            continue;
        }
        let (size, _) = objects.read_header(delta.new_file().id())?;
        let size = size as u64;
        if size > LARGEST {
            let path = quoted(new_path(&delta));
            return Err(GitError::TooLargeToWrite { path, bytes: size, most: LARGEST });
        }
        left = left.checked_sub(size).ok_or(GitError::TooMuchToWrite { most: bounds.max_transfer_bytes })?;
    }
    paths.dedup();
    Ok(paths)
}

/// Refuses a path that no operation of the host lane may write.
fn demand_writable(jail: &Jail, path: &[u8]) -> Result<(), GitError> {
    let text = String::from_utf8_lossy(path);
    let parsed = SandboxPath::parse(&format!("@project/{text}"));
    let refused = |refusal: jail::PathRefusal| GitError::Protected(refusal.to_string());
    let parsed = parsed.map_err(refused)?;
    // The rules of the profile first: their refusal has its stable reason.
    withheld::check(jail, path, Access::Write)?;
    jail.check(&parsed, Access::Write).map_err(refused)
}

/// Writes the files and the index, or nothing.
pub(super) fn check_out(repository: &Repository, tree: &Tree<'_>, paths: &[Vec<u8>]) -> Result<(), GitError> {
    if paths.is_empty() {
        return Ok(());
    }
    let mut conflicts = Vec::new();
    let mut options = CheckoutBuilder::new();
    options
        .safe()
        .overwrite_ignored(false)
        .disable_pathspec_match(true)
        .notify_on(CheckoutNotificationType::CONFLICT);
    options.notify(|_, path, _, _, _| {
        conflicts.extend(path.map(|path| quoted(path.as_os_str().as_bytes())));
        true
    });
    // Only these: libgit2 would open a submodule to compare it.
    for path in paths {
        options.path(path.as_slice());
    }
    let written = repository.checkout_tree(tree.as_object(), Some(&mut options));
    drop(options);
    match written {
        Err(error) if error.code() == ErrorCode::Conflict && conflicts.is_empty() => {
            Err(GitError::Overwrites(shown(error.message())))
        }
        Err(error) if error.code() == ErrorCode::Conflict => Err(GitError::Overwrites(excerpt(&conflicts))),
        written => Ok(written?),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use git2::{Oid, Signature};

    use super::super::testing::tree_of;
    use super::*;

    /// Commits these files and checks them out, if asked.
    fn commit(repository: &Repository, files: &[(&str, &str)]) -> Oid {
        let tree = tree_of(repository, files);
        let who = Signature::now("a", "a@example.org").unwrap();
        repository.commit(None, &who, &who, "m", &tree, &[]).unwrap()
    }

    #[test]
    fn a_checkout_writes_all_files_or_none() {
        let place = tempfile::tempdir().unwrap();
        let repository = Repository::init(place.path()).unwrap();
        repository.set_head("refs/heads/main").unwrap();
        let old = commit(&repository, &[("a", "1\n"), ("gone", "1\n"), ("same", "1\n")]);
        let new = commit(&repository, &[("a", "2\n"), ("d/b", "2\n"), ("same", "1\n")]);
        repository.reference("refs/heads/main", old, true, "test").unwrap();
        repository.checkout_head(Some(CheckoutBuilder::new().force())).unwrap();
        let tree = repository.find_commit(new).unwrap().tree().unwrap();
        let paths: Vec<Vec<u8>> = ["a", "d/b", "gone"].map(|path| path.as_bytes().to_vec()).into();
        let read = |path: &str| fs::read_to_string(place.path().join(path)).unwrap_or_default();

        let refused = |what: &str| {
            let done = check_out(&repository, &tree, &paths);
            let Err(GitError::Overwrites(named)) = done else { panic!("{what}: {done:?}") };
            assert!(named.contains(what), "{named}");
        };
        fs::write(place.path().join("a"), "mine\n").unwrap();
        refused("a");
        assert_eq!((read("a").as_str(), read("gone").as_str(), read("d/b").as_str()), ("mine\n", "1\n", ""));
        fs::write(place.path().join("a"), "1\n").unwrap();

        fs::create_dir(place.path().join("d")).unwrap();
        fs::write(place.path().join("d/b"), "not tracked\n").unwrap();
        refused("d/b");
        assert_eq!((read("a").as_str(), read("d/b").as_str()), ("1\n", "not tracked\n"));
        fs::remove_file(place.path().join("d/b")).unwrap();

        fs::write(place.path().join("same"), "changed beside\n").unwrap();
        check_out(&repository, &tree, &paths).unwrap();
        assert_eq!((read("a").as_str(), read("gone").as_str(), read("d/b").as_str()), ("2\n", "", "2\n"));
        assert_eq!(read("same"), "changed beside\n");
        let index = Repository::open(place.path()).unwrap().index().unwrap();
        let names: Vec<_> = index.iter().map(|entry| String::from_utf8(entry.path).unwrap()).collect();
        assert_eq!(names, ["a", "d/b", "same"]);
    }
}
