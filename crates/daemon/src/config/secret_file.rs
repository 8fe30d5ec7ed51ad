//! Reads files that hold one secret.

#![expect(clippy::disallowed_methods, reason = "files that the operator's configuration names")]

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Largest file that may contain a secret, in bytes.
const MAX: u64 = 1024;

/// Reads the text of a file that only its owner and group can read, without white space around it.
pub(super) fn read(path: &Path) -> Result<String, String> {
    read_at_most(path, MAX)
}

/// Reads such a file of at most `most` bytes. One byte more is an error, since a secret that is cut is another one.
pub(super) fn read_at_most(path: &Path, most: u64) -> Result<String, String> {
    let failed = |error: io::Error| format!("{} cannot be read: {error}", path.display());
    // Before the file is opened, because opening a FIFO waits.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & 0o007 != 0 {
        return Err(format!("{} is accessible to all users: run chmod o= on it", path.display()));
    }
    let mut text = String::new();
    file.take(most + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > most {
        return Err(format!("{} is longer than {most} bytes", path.display()));
    }
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::read;

    #[test]
    fn a_secret_is_read_from_a_closed_file_and_refused_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        fs::write(&path, "secret\n").unwrap();
        let read_with = |mode| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            read(&path)
        };
        assert_eq!(read_with(0o640).unwrap(), "secret");
        assert_eq!(super::read_at_most(&path, 7).unwrap(), "secret");
        assert!(super::read_at_most(&path, 6).unwrap_err().contains("longer than 6 bytes"));
        assert!(read_with(0o644).unwrap_err().contains("chmod"));
        assert!(read(directory.path()).unwrap_err().contains("not a regular file"));
        assert!(read(&directory.path().join("none")).unwrap_err().contains("cannot be read"));
    }
}
