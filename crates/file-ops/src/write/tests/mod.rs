//! Tests of writing and editing: matches, mismatches with their messages, and forbidden effects.

mod change;
mod delete;
mod edit;
mod held;
mod upload;
mod write;

use std::fs;
use std::path::PathBuf;

use jail::{Jail, Mount, Protection, Root, SandboxPath};

/// A jail over a temporary directory.
struct Scene {
    // Held for its removal.
    _top: tempfile::TempDir,
    inside: PathBuf,
    outside: PathBuf,
    jail: Jail,
}

impl Scene {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        let jail = Jail::new([Root::open(Mount::Project, &inside).unwrap()], Protection::default());
        Self { _top: top, inside, outside, jail }
    }

    fn put(&self, at: &str, content: impl AsRef<[u8]>) {
        fs::write(self.inside.join(at), content).unwrap();
    }

    fn get(&self, at: &str) -> Vec<u8> {
        fs::read(self.inside.join(at)).unwrap()
    }

    /// All names at the top.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(&self.inside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}
