//! The log file of a run, in a directory of the daemon that is outside the run's state directory.
//!
//! That directory is mounted read-only at `/state/logs`: the kernel lets no process in the container write, rename or remove the file, even
//! as the owner of the workspace. The host lane does not have that mount, and refuses paths beneath it by name (`jail/src/protect.rs`).
//!
//! The file is checked before each line all the same. It must still be the regular file of the last write, with the same length. Otherwise
//! somebody on the host has changed it, and the file is made anew.

#![expect(clippy::disallowed_methods, reason = "a directory that the daemon made")]

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, chmodat, fstat, ftruncate, mkdirat, openat, renameat, unlinkat,
};
use rustix::io::Errno;

/// Name of the mount point in the run's state directory.
const DIRECTORY: &str = "logs";
const FILE: &str = "execution.jsonl";
/// Name of the previous file, which became full.
const OLDER: &str = "execution.1.jsonl";
/// Largest size of a file, in bytes. There are two files.
const LARGEST: u64 = 32 * 1024 * 1024;
/// Mode of the file: readable for all.
const MODE: Mode = Mode::from_raw_mode(0o644);

/// Makes a run's log directory with an empty file in it, and the mount point for it in the run's state directory.
///
/// No other process has seen the state directory yet.
pub fn prepare(log: &Path, state: BorrowedFd<'_>) -> io::Result<()> {
    std::fs::create_dir_all(log.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    std::fs::create_dir(log)?;
    // Independent of the umask: the run reads the directory, and only the daemon writes.
    std::fs::set_permissions(log, Permissions::from_mode(0o755))?;
    create(open(log)?.as_fd())?;
    let readable = Mode::from_raw_mode(0o755);
    mkdirat(state, DIRECTORY, readable)?;
    chmodat(state, DIRECTORY, readable, AtFlags::empty())?;
    Ok(())
}

fn open(log: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(log, flags, Mode::empty())?)
}

fn create(log: BorrowedFd<'_>) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(log, FILE, flags, MODE)?;
    rustix::fs::fchmod(&file, MODE)?;
    Ok(file.into())
}

/// A run's file, open for appending.
#[derive(Debug)]
pub struct Location {
    log: OwnedFd,
    file: File,
    length: u64,
}

impl Location {
    /// Opens the file in a run's log directory. Returns `None` if the daemon did not make the file that is there.
    pub fn open(log: &Path) -> io::Result<Option<Self>> {
        let log = open(log)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&log, FILE, flags, Mode::empty()) {
            Ok(file) => file,
            // No file, a link, a FIFO without a reader, or a directory.
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let stat = fstat(&file)?;
        let ours = FileType::from_raw_mode(stat.st_mode).is_file()
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_nlink == 1;
        let length = u64::try_from(stat.st_size).unwrap_or(LARGEST);
        Ok(ours.then(|| Self { log, file: file.into(), length }))
    }

    /// Removes the file that is there and makes a new one.
    pub fn anew(log: &Path) -> io::Result<Self> {
        let log = open(log)?;
        let removed = unlinkat(&log, FILE, AtFlags::empty()).or_else(|error| match error {
            Errno::ISDIR => unlinkat(&log, FILE, AtFlags::REMOVEDIR),
            error => Err(error),
        });
        match removed {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let file = create(log.as_fd())?;
        Ok(Self { log, file, length: 0 })
    }

    /// Returns true if the name still leads to the file of the last write, and its length is unchanged.
    pub fn is_intact(&self) -> bool {
        let named = rustix::fs::statat(&self.log, FILE, AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(named), Ok(stat)) = (named, fstat(&self.file)) else { return false };
        (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino)
            && u64::try_from(stat.st_size) == Ok(self.length)
    }

    /// Returns true if so many bytes still fit.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.length + bytes as u64 <= LARGEST
    }

    /// Renames the file to the older one, and begins a new file.
    pub fn turn(self) -> io::Result<Self> {
        renameat(&self.log, FILE, &self.log, OLDER)?;
        let file = create(self.log.as_fd())?;
        Ok(Self { file, length: 0, log: self.log })
    }

    /// Appends whole lines, or leaves the file unchanged.
    pub fn append(&mut self, lines: &str) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines.as_bytes()) {
            // Cut off an incomplete line. If that fails, the next check finds that the file is not intact.
            let _ = ftruncate(&self.file, self.length);
            return Err(error);
        }
        self.length += lines.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    struct Run(tempfile::TempDir);

    impl Run {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir(directory.path().join("state")).unwrap();
            let state = File::open(directory.path().join("state")).unwrap();
            prepare(&directory.path().join("log"), state.as_fd()).unwrap();
            Self(directory)
        }

        fn log(&self) -> PathBuf {
            self.0.path().join("log")
        }

        fn file(&self) -> PathBuf {
            self.log().join(FILE)
        }
    }

    #[test]
    fn lines_are_appended_to_the_file_that_was_made() {
        let run = Run::new();
        for line in ["one\n", "two\n"] {
            let mut place = Location::open(&run.log()).unwrap().unwrap();
            place.append(line).unwrap();
            assert!(place.is_intact());
        }
        assert_eq!(std::fs::read_to_string(run.file()).unwrap(), "one\ntwo\n");
        let modes = [run.file(), run.log()].map(|path| path.metadata().unwrap().mode() & 0o7777);
        assert_eq!(modes, [0o644, 0o755]);
        assert!(run.0.path().join("state/logs").is_dir(), "what it is mounted on");
    }

    #[test]
    fn a_full_file_becomes_the_older_one() {
        let run = Run::new();
        let mut place = Location::open(&run.log()).unwrap().unwrap();
        place.append("one\n").unwrap();
        place.length = LARGEST - 2;
        assert!(place.has_room(2) && !place.has_room(3));
        let mut place = place.turn().unwrap();
        place.append("two\n").unwrap();
        assert_eq!(std::fs::read_to_string(run.file()).unwrap(), "two\n");
        assert_eq!(std::fs::read_to_string(run.log().join(OLDER)).unwrap(), "one\n");
    }

    /// Each kind of file that could have its name. Other files stay as they are.
    #[test]
    fn replaced_log_is_recreated_and_other_files_stay_unwritten() {
        type Harm = fn(&Run, &Path);
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("victim");
        let harms: [(&str, Harm); 7] = [
            ("a link", |run, victim| {
                std::fs::remove_file(run.file()).unwrap();
                symlink(victim, run.file()).unwrap();
            }),
            ("a second name of a file", |run, victim| {
                std::fs::remove_file(run.file()).unwrap();
                std::fs::hard_link(victim, run.file()).unwrap();
            }),
            ("a FIFO", |run, _| {
                std::fs::remove_file(run.file()).unwrap();
                rustix::fs::mknodat(rustix::fs::CWD, run.file(), FileType::Fifo, Mode::RWXU, 0).unwrap();
            }),
            ("a directory", |run, _| {
                std::fs::remove_file(run.file()).unwrap();
                std::fs::create_dir(run.file()).unwrap();
            }),
            ("another file", |run, _| {
                std::fs::remove_file(run.file()).unwrap();
                std::fs::write(run.file(), "before\n").unwrap();
                std::os::unix::fs::chown(run.file(), Some(4321), None).unwrap();
            }),
            ("nothing", |run, _| std::fs::remove_file(run.file()).unwrap()),
            ("a file of another length", |run, _| std::fs::write(run.file(), "").unwrap()),
        ];
        for (what, harm) in harms {
            std::fs::write(&victim, "victim\n").unwrap();
            let run = Run::new();
            let mut open = Location::open(&run.log()).unwrap().unwrap();
            open.append("before\n").unwrap();
            harm(&run, &victim);
            assert!(!open.is_intact(), "{what}");
            // One that was emptied is a file like another to who has not written it.
            let unknown = Location::open(&run.log()).unwrap();
            assert_eq!(unknown.is_some(), what == "a file of another length", "{what}");
            let mut place = Location::anew(&run.log()).unwrap();
            place.append("after\n").unwrap();
            assert_eq!(std::fs::read_to_string(run.file()).unwrap(), "after\n", "{what}");
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "victim\n", "{what}");
        }
    }
}
