//! Reads secrets from files.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::error::Why;
use crate::secret::{Buffer, Secret};

/// Origin of a file's access rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// The operator has set them, and they are checked.
    Operator,
    /// systemd has set them. A service with a user of its own reads its credentials by an access list, whose mask is the group's bits.
    Systemd,
}

/// Reads the file. Blocks.
pub(crate) fn read(path: &Path, access: Access) -> Result<Secret, Why> {
    // Opening a FIFO does not wait.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
        Errno::LOOP => Why::Link,
        other => Why::File(io::Error::from(other).kind()),
    })?;
    let mut file = File::from(opened);
    let failed = |error: io::Error| Why::File(error.kind());
    let status = file.metadata().map_err(failed)?;
    if !status.is_file() {
        return Err(Why::NotRegular);
    }
    check(status.mode(), status.uid(), geteuid().as_raw(), access)?;
    let mut buffer = Buffer::new();
    while !buffer.is_full() {
        match file.read(buffer.space()) {
            Ok(0) => break,
            Ok(count) => buffer.add(count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    buffer.secret()
}

/// Checks that no other user can read or replace what the file contains. `own` is the uid of this process.
fn check(mode: u32, owner: u32, own: u32, access: Access) -> Result<(), Why> {
    let others = match access {
        Access::Operator => 0o077,
        Access::Systemd => 0o007,
    };
    if mode & others != 0 {
        return Err(Why::Mode);
    }
    if access == Access::Operator && owner != 0 && owner != own {
        return Err(Why::Owner);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    fn made(directory: &Path, mode: u32, content: &[u8]) -> PathBuf {
        let path = directory.join("secret");
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_closed_file_is_read_and_an_open_one_refused() {
        let directory = tempfile::tempdir().unwrap();
        for (mode, access, result) in [
            (0o600, Access::Operator, Ok("value".to_owned())),
            (0o400, Access::Operator, Ok("value".to_owned())),
            (0o640, Access::Operator, Err(Why::Mode)),
            (0o604, Access::Operator, Err(Why::Mode)),
            (0o440, Access::Systemd, Ok("value".to_owned())),
            (0o444, Access::Systemd, Err(Why::Mode)),
        ] {
            let path = made(directory.path(), 0o600, b"value\n");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = read(&path, access).map(|secret| secret.expose().to_owned());
            assert_eq!(read, result, "{mode:o} {access:?}");
            fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn the_owner_is_root_or_the_daemon() {
        assert_eq!(check(0o600, 0, 7, Access::Operator), Ok(()));
        assert_eq!(check(0o600, 7, 7, Access::Operator), Ok(()));
        assert_eq!(check(0o600, 8, 7, Access::Operator), Err(Why::Owner));
        assert_eq!(check(0o400, 8, 7, Access::Systemd), Ok(()));
    }

    #[test]
    fn links_directories_pipes_and_missing_files_are_refused_without_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = made(directory.path(), 0o600, b"value");
        let at = |name: &str| directory.path().join(name);
        symlink(&path, at("link")).unwrap();
        symlink(directory.path(), at("above")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        for (name, why) in [
            ("link", Why::Link),
            ("pipe", Why::NotRegular),
            (".", Why::NotRegular),
            ("none", Why::File(io::ErrorKind::NotFound)),
            ("secret/below", Why::File(io::ErrorKind::NotADirectory)),
        ] {
            assert_eq!(read(&at(name), Access::Operator).unwrap_err(), why, "{name}");
        }
        assert_eq!(read(&at("above/secret"), Access::Operator).unwrap().expose(), "value");
    }

    #[test]
    fn a_file_that_is_too_long_is_not_read_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = made(directory.path(), 0o600, b"");
        File::options().write(true).open(&path).unwrap().set_len(1 << 30).unwrap();
        assert_eq!(read(&path, Access::Operator).unwrap_err(), Why::TooLong);
        let path = made(directory.path(), 0o600, &[b'x'; 8 * 1024]);
        assert_eq!(read(&path, Access::Operator).unwrap().expose().len(), 8 * 1024);
    }
}
