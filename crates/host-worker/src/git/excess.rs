//! The size that a clone has at least, which is compared with its bounds before anything is written.
//!
//! A repository can be far smaller than its files: a gibibyte of zeros is a megabyte of objects, and a tree that names another tree
//! ten times, ten levels deep, is ten billion names. So a clone counts the objects and references of its source before it copies
//! them, and then the files of the commit by the headers of their objects. It reads no content for that.
//!
//! Filters, line endings and encodings enlarge files. So the clone adds up the files again while it writes them. No single file
//! exceeds the bound (`setup/limits.rs`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use git2::{ErrorClass, ObjectType, Oid, Repository};
use host_launch::TreeBounds;
use rustix::io::Errno;
use thiserror::Error;

/// Exit code of a clone that exceeds its bounds.
pub(crate) const EXCESS: u8 = 5;
/// Most levels of directories in a commit, or among the objects of a repository.
const MAX_DEPTH: usize = 128;
/// Bytes of a file's entry in the index, without its path.
const ENTRY: u64 = 62;

/// The excess of a clone over its bounds, fit for a client.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum Excess {
    #[error("the clone takes at least {} MiB and may take {} MiB", .has.div_ceil(1 << 20), .most >> 20)]
    Bytes { has: u64, most: u64 },
    #[error("the clone has at least {has} files, directories and references and may have {most}")]
    Files { has: u64, most: u64 },
    #[error("directories of the clone are nested deeper than {MAX_DEPTH} levels")]
    Deep,
    /// The quota or the disk ended the clone before its bounds did.
    #[error("the clone takes more than the workspace's quota or its disk has left")]
    Full,
}

/// The reason why a size is not known, or exceeds the bounds.
#[derive(Debug, Error)]
pub(super) enum SizeError {
    #[error(transparent)]
    Excess(#[from] Excess),
    #[error(transparent)]
    Git(#[from] git2::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Errors of a write for which there is no space. No read has them.
const NO_SPACE: [Errno; 3] = [Errno::NOSPC, Errno::DQUOT, Errno::FBIG];

/// Returns true for the error of a write for which there is no space.
pub(super) fn is_full(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| NO_SPACE.map(Errno::raw_os_error).contains(&code))
}

/// Returns true for the error of a write of libgit2 for which there is no space. It tells the system's reason in words alone.
pub(super) fn is_full_in_git(error: &git2::Error) -> bool {
    let ends_with = |errno: Errno| {
        let words = io::Error::from(errno).to_string();
        words.split_once(" (os error").is_some_and(|(words, _)| error.message().ends_with(words))
    };
    error.class() == ErrorClass::Os && NO_SPACE.into_iter().any(ends_with)
}

/// The size that a clone has at least, within its bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    bytes: u64,
    files: u64,
    most: TreeBounds,
}

impl Size {
    pub(super) fn within(most: TreeBounds) -> Self {
        Self { bytes: 0, files: 0, most }
    }

    pub(super) fn add(&mut self, bytes: u64, files: u64) -> Result<(), Excess> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.files = self.files.saturating_add(files);
        if self.bytes > self.most.bytes {
            return Err(Excess::Bytes { has: self.bytes, most: self.most.bytes });
        }
        if self.files > self.most.files {
            return Err(Excess::Files { has: self.files, most: self.most.files });
        }
        Ok(())
    }

    /// Returns the excess of a file that is larger than the bounds.
    pub(super) fn full(&self) -> Excess {
        Excess::Bytes { has: self.most.bytes.saturating_add(1), most: self.most.bytes }
    }

    /// Adds the objects and the references of the source.
    pub(super) fn add_source(&mut self, source: &Repository) -> Result<(), SizeError> {
        self.add_objects(source.commondir().join("objects"))?;
        // A branch of the source has a reflog in the clone.
        for (names, files) in [("refs/heads/*", 2), ("refs/tags/*", 1)] {
            let mut references = source.references_glob(names)?;
            for _ in references.names() {
                self.add(0, files)?;
            }
        }
        Ok(())
    }

    /// Adds the files in a directory. Like a clone, it neither follows links nor counts special files.
    fn add_objects(&mut self, top: PathBuf) -> Result<(), SizeError> {
        let mut pending = vec![(top, 0)];
        while let Some((directory, depth)) = pending.pop() {
            if depth > MAX_DEPTH {
                return Err(Excess::Deep.into());
            }
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    self.add(0, 1)?;
                    pending.push((entry.path(), depth + 1));
                } else if metadata.is_file() {
                    self.add(metadata.len(), 1)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the files and directories of a commit's tree as they are stored, and their entries in the index.
    pub(super) fn add_tree(&mut self, repository: &Repository, top: Oid) -> Result<(), SizeError> {
        let odb = repository.odb()?;
        // Each tree with the length of its path and its level.
        let mut pending = vec![(top, 0_u64, 0)];
        while let Some((tree, above, depth)) = pending.pop() {
            if depth > MAX_DEPTH {
                return Err(Excess::Deep.into());
            }
            let tree = repository.find_tree(tree)?;
            for entry in &tree {
                let path = above + 1 + entry.name_bytes().len() as u64;
                match entry.kind() {
                    Some(ObjectType::Tree) => {
                        self.add(0, 1)?;
                        pending.push((entry.id(), path, depth + 1));
                    }
                    Some(ObjectType::Blob) => {
                        let (length, _) = odb.read_header(entry.id())?;
                        self.add((length as u64).saturating_add(ENTRY + path), 1)?;
                    }
                    // The commit of a submodule is an empty directory.
                    _ => self.add(ENTRY + path, 1)?,
                }
            }
        }
        Ok(())
    }

    /// Adds a file that was written beneath `top`. A path without a file adds nothing.
    pub(super) fn add_written(&mut self, top: &Path, path: &Path) -> Result<(), Excess> {
        self.add(fs::symlink_metadata(top.join(path)).map_or(0, |metadata| metadata.len()), 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use git2::{ErrorCode, RepositoryInitOptions};

    use super::*;

    const MIB: u64 = 1 << 20;
    const MOST: TreeBounds = TreeBounds { bytes: MIB, files: 1_000 };

    fn repository() -> (tempfile::TempDir, Repository) {
        let place = tempfile::tempdir().unwrap();
        let options = &mut RepositoryInitOptions::new();
        let repository = Repository::init_opts(place.path(), options.external_template(false)).unwrap();
        (place, repository)
    }

    /// Writes a tree with these names of one object.
    fn tree(repository: &Repository, names: &[&str], object: Oid, mode: i32) -> Oid {
        let mut builder = repository.treebuilder(None).unwrap();
        for name in names {
            builder.insert(name, object, mode).unwrap();
        }
        builder.write().unwrap()
    }

    fn excess(failure: Result<(), SizeError>) -> Excess {
        match failure.unwrap_err() {
            SizeError::Excess(excess) => excess,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn files_of_a_commit_count_by_their_length_and_not_by_their_objects() {
        let (_place, repository) = repository();
        let zeros = repository.blob(&vec![0; 700 << 10]).unwrap();
        let mut size = Size::within(MOST);
        size.add_source(&repository).unwrap();
        assert!(size.bytes < 100 << 10, "{size:?}");
        let one = tree(&repository, &["a"], zeros, 0o100_644);
        size.add_tree(&repository, one).unwrap();
        assert!(size.bytes > 700 << 10, "{size:?}");
        // The same object is two files.
        let two = tree(&repository, &["a", "b"], zeros, 0o100_644);
        let excess = excess(Size::within(MOST).add_tree(&repository, two));
        let Excess::Bytes { has, most } = excess else { panic!("{excess:?}") };
        assert!(most == MIB && has > 1_400 << 10);
        assert_eq!(excess.to_string(), "the clone takes at least 2 MiB and may take 1 MiB");
    }

    #[test]
    fn a_small_repository_with_billions_of_names_is_refused_without_a_walk_of_all() {
        let (_place, repository) = repository();
        let names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
        let empty = repository.blob(b"").unwrap();
        let mut top = tree(&repository, &names, empty, 0o100_644);
        for _ in 0..10 {
            top = tree(&repository, &names, top, 0o040_000);
        }
        let found = excess(Size::within(MOST).add_tree(&repository, top));
        assert_eq!(found, Excess::Files { has: 1_001, most: 1_000 });
        for _ in 0..=MAX_DEPTH {
            top = tree(&repository, &["0"], top, 0o040_000);
        }
        assert_eq!(excess(Size::within(MOST).add_tree(&repository, top)), Excess::Deep);
    }

    #[test]
    fn objects_and_references_of_the_source_count_and_its_links_do_not() {
        let (place, repository) = repository();
        let mut before = Size::within(MOST);
        before.add_source(&repository).unwrap();
        let objects = place.path().join(".git/objects");
        symlink("/", objects.join("link")).unwrap();
        fs::write(objects.join("pack/x"), vec![0; 1_000]).unwrap();
        fs::create_dir(place.path().join(".git/refs/tags/v")).unwrap();
        for name in ["refs/heads/a", "refs/tags/v/1"] {
            fs::write(place.path().join(".git").join(name), format!("{:040}\n", 1)).unwrap();
        }
        let mut after = Size::within(MOST);
        after.add_source(&repository).unwrap();
        assert_eq!((after.bytes - before.bytes, after.files - before.files), (1_000, 1 + 2 + 1));
        let few = TreeBounds { files: after.files - 1, ..MOST };
        let found = excess(Size::within(few).add_source(&repository));
        assert_eq!(found, Excess::Files { has: after.files, most: after.files - 1 });

        let deep = (0..=MAX_DEPTH).fold(objects, |path, _| path.join("d"));
        fs::create_dir_all(deep).unwrap();
        assert_eq!(excess(Size::within(MOST).add_source(&repository)), Excess::Deep);
    }

    #[test]
    fn a_write_without_space_is_told_from_other_errors() {
        for errno in NO_SPACE {
            let error = io::Error::from(errno);
            assert!(is_full(&error), "{error}");
            let words = error.to_string();
            let message = format!("could not write to 'a': {}", words.split_once(" (os error").unwrap().0);
            let of_git = |class| git2::Error::new(ErrorCode::GenericError, class, &message);
            assert!(is_full_in_git(&of_git(ErrorClass::Os)), "{message}");
            assert!(!is_full_in_git(&of_git(ErrorClass::Odb)), "{message}");
        }
        assert!(!is_full(&Errno::IO.into()));
        let other =
            git2::Error::new(ErrorCode::GenericError, ErrorClass::Os, "could not read 'a': I/O error");
        assert!(!is_full_in_git(&other));
    }

    #[test]
    fn files_count_again_when_they_are_written() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("a"), "12345").unwrap();
        let mut size = Size::within(TreeBounds { bytes: 9, files: 0 });
        size.add_written(place.path(), Path::new("a")).unwrap();
        size.add_written(place.path(), Path::new("removed")).unwrap();
        let found = size.add_written(place.path(), Path::new("a")).unwrap_err();
        assert_eq!(found, Excess::Bytes { has: 10, most: 9 });
    }
}
