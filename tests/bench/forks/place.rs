//! A daemon, and a large repository beneath its workspace roots.

use std::fs;
use std::path::{Path, PathBuf};

use harness::v1::CreateRunRequest;
use harness::{Daemon, RunHandle, calls, git, own, requests};

use super::{PROFILE, Size, daemon};

/// Files in a directory.
const WIDTH: usize = 50;
/// User to whom the repository belongs.
pub(super) const OWNER: u32 = 4321;
/// Containers that are kept ready.
const READY: usize = 4;

/// What all measures but those of many forks use.
pub(super) struct Place {
    pub(super) daemon: Daemon,
    pub(super) repository: PathBuf,
    pub(super) image: String,
}

impl Place {
    pub(super) async fn make(image: &str, size: Size) -> Self {
        let daemon = daemon(image, READY).await;
        let repository = repository(&daemon, size.files);
        eprintln!("a repository of {} files: done", size.files);
        Self { daemon, repository, image: image.to_owned() }
    }

    /// Adds the image.
    pub(super) fn with_image(&self, request: CreateRunRequest) -> CreateRunRequest {
        CreateRunRequest { image: self.image.clone(), ..request }
    }

    /// Makes a run on an overlay over the repository.
    pub(super) async fn overlay(&self) -> RunHandle {
        self.daemon.run_on(self.with_image(requests::overlay(PROFILE, &self.repository))).await
    }
}

/// Makes a repository with so many files in one commit.
pub(super) fn repository(daemon: &Daemon, files: usize) -> PathBuf {
    let path = |number: usize| {
        let directory = number / WIDTH;
        format!("area-{}/module-{directory}/file-{number}.txt", directory / WIDTH)
    };
    let files: Vec<_> =
        (0..files).map(|number| (path(number), format!("the file of number {number}\n"))).collect();
    let files: Vec<_> = files.iter().map(|(path, content)| (path.as_str(), content.as_str())).collect();
    let repository = daemon.repository("repository", &files);
    // As a repository that was cloned from a server is.
    git(&repository, &["repack", "-adq"]);
    own(&repository, OWNER);
    repository
}

/// Changes of a run: so many files of so many bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changes {
    pub(super) files: usize,
    pub(super) bytes: usize,
}

impl Changes {
    /// Returns the length of all files.
    pub(super) const fn total(self) -> u64 {
        self.files as u64 * self.bytes as u64
    }

    /// Has a command of the run make them anew, with other contents each time.
    pub(super) async fn make(self, run: &mut RunHandle) {
        let Self { files, bytes } = self;
        let script = format!(
            "mkdir -p changed && for i in $(seq {files}); do head -c {bytes} /dev/urandom >changed/$i || exit 1; done"
        );
        let made = run.ran(calls::shell(&script)).await;
        assert_eq!(made.exit_code, Some(0), "{}", made.stderr);
    }

    /// Makes the same on the host, to be copied.
    pub(super) fn beside(self, daemon: &Daemon, name: &str) -> PathBuf {
        let directory = daemon.outside().join(name);
        fs::create_dir(&directory).unwrap();
        for number in 1..=self.files {
            fs::write(directory.join(number.to_string()), vec![b'x'; self.bytes]).unwrap();
        }
        directory
    }
}

/// Returns the directory to which `from` is copied.
pub(super) fn copy_of(from: &Path) -> PathBuf {
    from.with_extension("copy")
}
