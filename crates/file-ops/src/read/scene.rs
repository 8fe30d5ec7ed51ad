//! A jail over a temporary directory for the tests of this lane's operations.

use std::fs;
use std::path::{Path, PathBuf};

use jail::{Jail, Mount, Protection, Root, SandboxPath};

pub(super) struct Scene {
    // Removed on drop
    _top: tempfile::TempDir,
    pub(super) inside: PathBuf,
    pub(super) outside: PathBuf,
    pub(super) jail: Jail,
}

impl Scene {
    pub(super) fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("canary"), "canary").unwrap();
        let jail = Jail::new([Root::open(Mount::Project, &inside).unwrap()], Protection::default());
        Self { _top: top, inside, outside, jail }
    }

    /// Writes a file, and the directories to it.
    pub(super) fn file(&self, at: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let at = self.inside.join(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, content).unwrap();
    }

    pub(super) fn fifo(&self, at: &str) {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, self.inside.join(at), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
    }
}

pub(super) fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

/// Takes the one kind of result that the operation has.
macro_rules! expect_result {
    ($outcome:expr, $kind:ident) => {
        match $outcome {
            Ok(operations::OpResult::$kind(result)) => result,
            other => panic!("unexpected: {other:?}"),
        }
    };
}
pub(super) use expect_result;
