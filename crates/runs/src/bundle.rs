//! The bundle of certificates of a container, for a run whose egress opens connections. Beside it are the same certificates for Java, and a
//! policy for Chromium.
//!
//! ```text
//!  container made, or made to wait ─► the host's roots ─► READY: and the authority of the run's process ─► container removed, bundle too
//! ```
//!
//! The files are beside the container's mount points, under the name with which the container was made. Mounts follow their inodes, so they
//! are never replaced: the egress writes them in place whenever a process of the run begins. No checkpoint has them, and no quota counts
//! them.

#![expect(clippy::disallowed_methods, reason = "a file of the daemon beside mount points that it made")]

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use containers::{EtcFiles, Hardening, RunUser, bundle_mounts, chromium_policy, java_store};
use refusal::Refusal;
use tokio::task::block_in_place;

use crate::launch::Launcher;

/// Readable for every user of the container.
const MODE: u32 = 0o644;

impl Launcher {
    /// Makes the bundle of the container that is made as `made_as`, if it has one. The directory of its mount points is there.
    pub(crate) fn make_bundle(&self, made_as: &str, hardening: &Hardening) -> Result<(), Refusal> {
        let Some(path) = self.bundle_of(made_as, hardening) else { return Ok(()) };
        let roots = &self.way_out.outside.shared().roots;
        let made = block_in_place(|| {
            make(&path, roots.pem().as_bytes())?;
            make(&java_store(&path), &roots.java_store(None))?;
            make(&chromium_policy(&path), egress::chromium_policy(None).as_bytes())
        });
        made.map_err(|error| Refusal::internal("making the run's bundle of certificates", &error))
    }

    /// Returns the bundle of a container, if it has one.
    pub(crate) fn bundle_of(&self, made_as: &str, hardening: &Hardening) -> Option<PathBuf> {
        hardening.has_bundle.then(|| self.directories.bundle(made_as))
    }

    /// Returns the daemon's files that are mounted in the container that was made as `made_as`. `bundles` are those of its image.
    pub(crate) fn own_files(
        &self,
        made_as: &str,
        user: RunUser,
        hardening: &Hardening,
        bundles: &[&'static str],
    ) -> Result<EtcFiles, Refusal> {
        let mut files = if hardening.has_own_etc() { self.etc(user, hardening)? } else { EtcFiles::new() };
        if let Some(bundle) = self.bundle_of(made_as, hardening) {
            files.extend(bundle_mounts(&bundle, bundles).map(|(source, path)| (path, source)));
        }
        Ok(files)
    }
}

fn make(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    // The daemon's umask has no say.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use run_directories::directories::BUNDLE;
    use run_directories::resources::RunResources;

    #[test]
    fn a_bundle_is_readable_for_all_and_ends_with_its_mount_points() {
        let state = tempfile::tempdir().unwrap();
        let slots = state.path().join("slots");
        let mut resources = RunResources::default();
        resources.make_slots(&slots).unwrap();
        let path = slots.join(BUNDLE);
        make(&path, b"roots\n").unwrap();
        make(&java_store(&path), b"roots").unwrap();
        make(&chromium_policy(&path), b"{}").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, MODE);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "roots\n");
        assert_eq!(make(&path, b"others\n").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        resources.remove_slots();
        assert!(!slots.exists());
    }
}
