//! A directory tree that is made beside its place and gets its name by one rename. Its caller then records it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Ends the name of a tree that is not complete.
const PART: &str = "part";

/// Returns the path of the tree while it is made. Only names without a dot are safe for it, such as ids.
pub fn staging(path: &Path) -> PathBuf {
    path.with_extension(PART)
}

/// Returns the name that a tree with this name, complete or not, has when it is complete.
pub fn final_name(name: &str) -> &str {
    name.strip_suffix(PART).and_then(|name| name.strip_suffix('.')).unwrap_or(name)
}

/// Gives the tree its final name, and returns when the tree and the name are on disk. Blocks the thread.
///
/// A crash before that may leave an incomplete tree under the final name. So a tree exists only once its caller has recorded it, and the
/// caller removes trees that have no record. One sync is then enough for the tree and the name.
pub fn place(path: &Path) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, flags, Mode::empty())?;
    rustix::fs::rename(staging(path), path)?;
    Ok(rustix::fs::syncfs(&parent)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_tree_has_its_final_name_alone_when_it_is_placed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("id");
        fs::create_dir(staging(&path)).unwrap();
        fs::write(staging(&path).join("file"), "x").unwrap();
        place(&path).unwrap();
        assert!(!staging(&path).exists());
        assert_eq!(fs::read(path.join("file")).unwrap(), b"x");
        assert!(place(&path).is_err(), "there is no other one");
    }

    #[test]
    fn an_incomplete_tree_has_the_name_of_the_complete_one() {
        for (name, complete) in [("id", "id"), ("id.part", "id"), ("part", "part"), ("idpart", "idpart")] {
            assert_eq!(final_name(name), complete);
        }
    }
}
