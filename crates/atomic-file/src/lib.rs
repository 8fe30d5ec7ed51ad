#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod tree;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use tempfile::NamedTempFile;

/// Replaces `path` with a file that `fill` writes. After a crash there is either the old or the new file.
///
/// The new file is on the disk before this function returns. It has mode 0600, unless `fill` sets another.
pub fn replace(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let directory = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let mut aside = NamedTempFile::new_in(directory)?;
    fill(aside.as_file_mut())?;
    aside.as_file().sync_all()?;
    aside.persist(path)?;
    File::open(directory)?.sync_all()
}

/// Reads a file of at most `longest` bytes. `None` if there is none.
pub fn read(path: &Path, longest: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut content = Vec::new();
    file.take(longest.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > longest {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {longest} bytes")));
    }
    Ok(Some(content))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_link_is_replaced_and_its_target_stays() {
        let directory = tempfile::tempdir().unwrap();
        let (link, target) = (directory.path().join("link"), directory.path().join("target"));
        std::fs::write(&target, "old").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();

        replace(&link, |file| file.write_all(b"new")).unwrap();

        assert_eq!(std::fs::read(&target).unwrap(), b"old");
        assert_eq!(std::fs::read(&link).unwrap(), b"new");
        let metadata = std::fs::symlink_metadata(&link).unwrap();
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_file_is_read_up_to_a_length() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(read(&path, 3).unwrap(), None);
        replace(&path, |file| file.write_all(b"one")).unwrap();
        assert_eq!(read(&path, 3).unwrap().unwrap(), b"one");
        assert_eq!(read(&path, u64::MAX).unwrap().unwrap(), b"one");
        assert_eq!(read(&path, 2).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(read(directory.path(), 3).is_err(), "a directory");
    }

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
