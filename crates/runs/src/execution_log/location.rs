//! The file itself. It lies in a directory of the daemon's own, outside of the run's state directory, and that directory is mounted
//! read-only at `/state/logs`: the kernel lets nobody in the container write, rename or remove it, whoever owns the workspace.
//! The host lane does not have that mount, and is refused what is beneath it by name (`jail/src/protect.rs`).
//!
//! What is there all the same is looked at before each line: it is written only while it is the regular file that this wrote
//! last, as long as it was. Anything else was done by somebody on the host, and the file is made anew.

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

/// Where the directory appears in the run's state directory.
const DIRECTORY: &str = "logs";
const FILE: &str = "execution.jsonl";
/// What was the file before it was full.
const OLDER: &str = "execution.1.jsonl";
/// Largest file, bytes. There are two.
const LARGEST: u64 = 32 * 1024 * 1024;
/// Readable for all.
const MODE: Mode = Mode::from_raw_mode(0o644);

/// Makes a run's log directory with an empty file in it, and the directory in its state directory that it is mounted on, which
/// nobody else has seen yet.
pub(crate) fn prepare(log: &Path, state: BorrowedFd<'_>) -> io::Result<()> {
    std::fs::create_dir_all(log.parent().ok_or(io::ErrorKind::InvalidInput)?)?;
    std::fs::create_dir(log)?;
    // Whatever the umask: the run reads it, and nobody else writes.
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
pub(super) struct Location {
    log: OwnedFd,
    file: File,
    length: u64,
}

impl Location {
    /// Opens the file in a run's log directory. `None`: what is there is no file of the daemon's.
    pub(super) fn open(log: &Path) -> io::Result<Option<Self>> {
        let log = open(log)?;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&log, FILE, flags, Mode::empty()) {
            Ok(file) => file,
            // Nothing, a link, a FIFO that nobody reads, a directory.
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

    /// Takes away what is there and makes the file.
    pub(super) fn anew(log: &Path) -> io::Result<Self> {
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

    /// Whether it is still the file that was written last, and nobody has written since.
    pub(super) fn is_intact(&self) -> bool {
        let named = rustix::fs::statat(&self.log, FILE, AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(named), Ok(stat)) = (named, fstat(&self.file)) else { return false };
        (named.st_dev, named.st_ino) == (stat.st_dev, stat.st_ino)
            && u64::try_from(stat.st_size) == Ok(self.length)
    }

    /// Whether there is room for so many bytes.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.length + bytes as u64 <= LARGEST
    }

    /// Keeps what was written as the older file, and begins another.
    pub(super) fn turn(self) -> io::Result<Self> {
        renameat(&self.log, FILE, &self.log, OLDER)?;
        let file = create(self.log.as_fd())?;
        Ok(Self { file, length: 0, log: self.log })
    }

    /// Appends whole lines, or nothing.
    pub(super) fn append(&mut self, lines: &str) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines.as_bytes()) {
            // Half a line; where it cannot be cut off, the file is not intact.
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

    /// Each thing that could be in its place. What lies elsewhere stays as it is.
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
