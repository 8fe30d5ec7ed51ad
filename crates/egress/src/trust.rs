//! The file of authorities that programs of a run trust.
//!
//! It is mounted into the container by its inode, so it is written in place. The authorities of the host come first and stay where they are,
//! so that a program that reads the file meanwhile lacks none of them.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags, open};

use crate::roots::pem;

/// Writes the authorities of the host, and that of a process, which is in DER. The file has to exist.
pub(crate) fn write(path: &Path, roots: &str, authority: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the bundle of authorities is not a file"));
    }
    let text = [roots, &pem(authority)].concat();
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_bundle_is_written_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle");
        assert_eq!(write(&path, "", b"").unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "x".repeat(10_000)).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        write(&path, "roots\n", b"first").unwrap();
        write(&path, "roots\n", b"two").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "roots\n-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n");
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);

        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(write(&link, "", b"").is_err(), "a link is not followed");
        assert!(write(directory.path(), "", b"").is_err());
    }
}
