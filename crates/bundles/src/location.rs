//! Creates the temporary files of a bundle. They have no name, so the kernel frees them when they are closed.

#![expect(clippy::disallowed_methods, reason = "a directory of the daemon's own")]

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Private directory for the files of bundles.
///
/// It is empty except for the moment between the creation of a file and the removal of its name.
#[derive(Debug, Clone)]
pub(super) struct Location {
    directory: PathBuf,
    min_free: u64,
}

impl Location {
    pub(super) fn open(directory: &Path, min_free: u64) -> io::Result<Self> {
        // A previous daemon may have died in that moment.
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned(), min_free })
    }

    /// Creates a file without a name, open for reading and writing.
    pub(super) fn file(&self) -> io::Result<File> {
        let path = self.directory.join(uuid::Uuid::new_v4().to_string());
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    }

    /// Returns true if the file system keeps its minimum of free space after `bytes` more. The audit log needs that
    /// space most.
    pub(super) fn has_space(&self, bytes: u64) -> io::Result<bool> {
        let stat = rustix::fs::statvfs(&self.directory)?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(free >= bytes.saturating_add(self.min_free))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};

    use super::Location;

    #[test]
    fn files_have_no_name_and_leftovers_of_a_crash_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("bundles");
        let location = Location::open(&directory, 0).unwrap();
        let mut file = location.file().unwrap();
        file.write_all(b"abc").unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        std::fs::write(directory.join("left"), "x").unwrap();
        let location = Location::open(&directory, 0).unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        assert!(location.has_space(1).unwrap());
        assert!(!location.has_space(u64::MAX).unwrap());
        assert!(!Location::open(&directory, u64::MAX).unwrap().has_space(0).unwrap());
    }
}
