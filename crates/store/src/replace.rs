//! Files of the daemon that are replaced as a whole.

#![expect(clippy::disallowed_methods, reason = "the daemon's own files")]

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::NamedTempFile;

/// Replaces `path` with a file that `fill` writes. After a crash there is either the old or the new file.
///
/// The new file is on the disk before this function returns. It has mode 0600, unless `fill` sets another.
pub fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let mut aside = NamedTempFile::new_in(directory)?;
    fill(aside.as_file_mut())?;
    aside.as_file().sync_all()?;
    aside.persist(path)?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        replace(&path, |file| file.write_all(b"one")).unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        replace(&path, |file| file.write_all(b"two")).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left beside it");
    }
}
