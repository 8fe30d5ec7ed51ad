//! The file itself, in a directory that hostile processes write to: trust boundary.
//!
//! The run's state directory is mounted into its container, whose processes may put anything there. So the directory
//! `logs` and the file are made before there is a container, belong to the daemon's own user and may be written by
//! nobody else; with an idmapped mount the kernel lets the container neither rename nor remove them. The file is opened
//! again beneath the state directory's handle only: through no link and into no other mount (`openat2`), without
//! waiting (a FIFO), and written only when it is a regular file of the daemon's user with one name. Where a run's
//! processes have moved the directory aside, its copy ends; nothing else can be reached by that.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

const DIRECTORY: &str = "logs";
const FILE: &str = "execution.jsonl";
/// Largest file, bytes: it counts for the run's own disk space.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Makes directory and file in a state directory that nobody else has seen yet.
pub(crate) fn prepare(state: BorrowedFd<'_>) -> io::Result<()> {
    let readable = Mode::from_raw_mode(0o755);
    rustix::fs::mkdirat(state, DIRECTORY, readable)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let logs = rustix::fs::openat(state, DIRECTORY, flags, Mode::empty())?;
    // Whatever the umask: the run reads it, and nobody else writes.
    rustix::fs::fchmod(&logs, readable)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o644);
    let file = rustix::fs::openat(&logs, FILE, flags, mode)?;
    rustix::fs::fchmod(&file, mode)?;
    Ok(())
}

/// A run's file, open for appending.
#[derive(Debug)]
pub(super) struct Place {
    file: File,
    length: u64,
}

impl Place {
    /// Opens the file beneath a run's state directory. `None`: there is none, or none of ours.
    pub(super) fn open(state: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(state, flags, Mode::empty()) {
            Ok(state) => Self::beneath(state.as_fd()),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn beneath(state: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV;
        let opened = rustix::fs::openat2(state, format!("{DIRECTORY}/{FILE}"), flags, Mode::empty(), resolve);
        let file: OwnedFd = match opened {
            Ok(file) => file,
            // Moved away, replaced by something that is none, or a FIFO that nobody reads.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::ISDIR) => {
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        };
        let stat = rustix::fs::fstat(&file)?;
        let ours = FileType::from_raw_mode(stat.st_mode).is_file()
            && stat.st_uid == rustix::process::geteuid().as_raw()
            && stat.st_nlink == 1;
        let length = u64::try_from(stat.st_size).unwrap_or(LARGEST);
        Ok(ours.then(|| Self { file: file.into(), length }))
    }

    /// Appends a line.
    pub(super) fn append(&mut self, line: &str) -> io::Result<()> {
        if self.length + line.len() as u64 > LARGEST {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is as large as it may be"));
        }
        self.file.write_all(line.as_bytes())?;
        self.length += line.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    struct State(tempfile::TempDir);

    impl State {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            prepare(File::open(directory.path()).unwrap().as_fd()).unwrap();
            Self(directory)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn place(&self) -> Option<Place> {
            Place::open(self.0.path()).unwrap()
        }
    }

    #[test]
    fn lines_are_appended_to_the_file_that_was_made() {
        let state = State::new();
        for line in ["one\n", "two\n"] {
            state.place().unwrap().append(line).unwrap();
        }
        let path = state.path("logs/execution.jsonl");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        let modes =
            [path.as_path(), &state.path("logs")].map(|path| path.metadata().unwrap().mode() & 0o7777);
        assert_eq!(modes, [0o644, 0o755]);
        let mut full = state.place().unwrap();
        full.length = LARGEST - 2;
        assert!(full.append("one\n").is_err());
    }

    /// Each thing that a run could put in its place; what lies outside of the state directory stays as it is.
    #[test]
    fn nothing_else_is_ever_written() {
        type Harm = fn(&State, &Path);
        let outside = tempfile::tempdir().unwrap();
        let victim = outside.path().join("execution.jsonl");
        std::fs::write(&victim, "victim\n").unwrap();
        let harms: [(&str, Harm); 8] = [
            ("a link to a file", |state, victim| {
                let file = state.path("logs/execution.jsonl");
                std::fs::remove_file(&file).unwrap();
                symlink(victim, file).unwrap();
            }),
            ("a second name of a file", |state, victim| {
                let file = state.path("logs/execution.jsonl");
                std::fs::remove_file(&file).unwrap();
                std::fs::hard_link(victim, file).unwrap();
            }),
            ("a link to a directory", |state, victim| {
                std::fs::rename(state.path("logs"), state.path("aside")).unwrap();
                symlink(victim.parent().unwrap(), state.path("logs")).unwrap();
            }),
            ("a way up", |state, victim| {
                std::fs::rename(state.path("logs"), state.path("aside")).unwrap();
                let up = format!("../{}", victim.parent().unwrap().file_name().unwrap().to_str().unwrap());
                symlink(up, state.path("logs")).unwrap();
            }),
            ("a FIFO", |state, _| {
                let file = state.path("logs/execution.jsonl");
                std::fs::remove_file(&file).unwrap();
                rustix::fs::mknodat(rustix::fs::CWD, file, FileType::Fifo, Mode::RWXU, 0).unwrap();
            }),
            ("a directory", |state, _| {
                let file = state.path("logs/execution.jsonl");
                std::fs::remove_file(&file).unwrap();
                std::fs::create_dir(file).unwrap();
            }),
            ("somebody else's file", |state, _| {
                std::os::unix::fs::chown(state.path("logs/execution.jsonl"), Some(4321), None).unwrap();
            }),
            ("nothing", |state, _| std::fs::remove_dir_all(state.path("logs")).unwrap()),
        ];
        for (what, harm) in harms {
            let state = State::new();
            harm(&state, &victim);
            assert!(state.place().is_none(), "{what}");
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "victim\n", "{what}");
        }
    }
}
