//! A jail over a temporary directory, with a canary outside of it.

use std::fs;
use std::path::PathBuf;

use cofferdam_jail::{Access, GitReads, Jail, Mount, Private, Protection, Root, SandboxPath};

pub(crate) struct Scene {
    // Held for its removal.
    _top: tempfile::TempDir,
    pub(crate) inside: PathBuf,
    pub(crate) outside: PathBuf,
    pub(crate) jail: Jail,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(Protection { git_reads: GitReads::Open })
    }

    pub(crate) fn with(protection: Protection) -> Self {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("inside"), top.path().join("outside"));
        fs::create_dir(&inside).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("canary"), "canary").unwrap();
        let jail = Jail::new([Root::open(Mount::Project, &inside).unwrap()], protection);
        Self { _top: top, inside, outside, jail }
    }

    /// With a private directory, of which `job` is the user: its path.
    pub(crate) fn private(mut self, job: u64) -> (Self, PathBuf) {
        let private = self.outside.with_file_name("private");
        fs::create_dir(&private).unwrap();
        self.jail = self.jail.with_private(Private::open(&private, job).unwrap());
        (self, private)
    }

    /// Reads a file through the jail, or says why not.
    pub(crate) fn read(&self, text: &str) -> Result<String, String> {
        self.read_as(text, Access::Read)
    }

    pub(crate) fn read_as(&self, text: &str, access: Access) -> Result<String, String> {
        let path = path(text);
        let place = match access {
            Access::Execute => self.jail.executable(&path),
            Access::Read | Access::Write => self.jail.readable(&path),
        };
        let opened =
            place.map_err(|refusal| refusal.to_string())?.open_file().map_err(|error| error.to_string())?;
        std::io::read_to_string(opened.file).map_err(|error| error.to_string())
    }

    /// The names that are outside now.
    pub(crate) fn outside_names(&self) -> Vec<String> {
        names(&self.outside)
    }
}

pub(crate) fn names(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}
