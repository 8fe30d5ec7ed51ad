//! A jail over a directory of its own, made once for a target's whole life.

use std::fs;
use std::path::PathBuf;

use jail::{GitReads, Jail, Mount, Protection, Root, SandboxPath};
use operations::Bounds;
use tempfile::TempDir;

/// The directory and the jail.
pub struct Scene {
    directory: TempDir,
    /// `@project` is the directory.
    pub jail: Jail,
}

impl Scene {
    /// With these files, each of which holds its own path.
    pub fn new(files: &[String]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = Root::open(Mount::Project, directory.path()).expect("a root");
        let jail = Jail::new([root], Protection { git_reads: GitReads::Guarded });
        let scene = Self { directory, jail };
        files.iter().for_each(|file| scene.write(file, file.as_bytes()));
        scene
    }

    /// Makes or replaces a file.
    pub fn write(&self, file: &str, content: &[u8]) {
        let path: PathBuf = self.directory.path().join(file);
        fs::create_dir_all(path.parent().expect("a file beneath the root")).expect("directories");
        fs::write(path, content).expect("a file");
    }

    /// The content of a file.
    pub fn read(&self, file: &str) -> Vec<u8> {
        fs::read(self.directory.path().join(file)).expect("a file")
    }
}

/// The names of a tree that is small, but has every kind of name: every file name in every directory.
pub fn names() -> Vec<String> {
    const DIRECTORIES: [&str; 7] = ["", "d/", "d/e/", "d/e/d/", ".h/", "éd/", "[d]/"];
    const FILES: [&str; 14] =
        ["a", "b", "ab", "a.b", "A", ".a", "[a]", "{a,b}", "*", "a\\b", "é", "a b", "-", "a!"];
    DIRECTORIES.iter().flat_map(|directory| FILES.map(|file| format!("{directory}{file}"))).collect()
}

/// A path that is known to be one.
pub fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).expect("a path")
}

/// Bounds that leave the answers whole.
pub fn wide() -> Bounds {
    Bounds { max_output_bytes: 1 << 24, max_read_bytes: 1 << 24, ..Bounds::default() }
}
