//! The files of authorities that programs of a run trust.
//!
//! They are mounted into the container by their inodes, so they are written in place. The authorities of the host come first. In the bundle
//! they stay where they are, so that a program that reads it meanwhile lacks none of them. A JVM that starts in that moment may find its
//! store unreadable, and Chromium its policy, which it reads again after a change.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::{Mode, OFlags, open};
use serde_json::json;

use crate::roots::{Roots, pem};

/// Files of one container. Both exist.
#[derive(Debug, Clone)]
pub struct Trust {
    /// Certificates in PEM.
    pub bundle: PathBuf,
    /// The same in the form that Java reads.
    pub java: PathBuf,
    /// The policy by which Chromium trusts the authority.
    pub chromium: PathBuf,
}

impl Trust {
    /// Writes the authorities of the host, and that of a process, which is in DER.
    pub(crate) fn write(&self, roots: &Roots, authority: &[u8]) -> io::Result<()> {
        write(&self.bundle, [roots.pem(), &pem(authority)].concat().as_bytes())?;
        write(&self.java, &roots.java_store(Some(authority)))?;
        write(&self.chromium, chromium_policy(Some(authority)).as_bytes())
    }
}

/// Returns a policy of Chromium with an authority, which is in DER. Chromium has the authorities of the web by itself.
pub fn chromium_policy(authority: Option<&[u8]>) -> String {
    let authorities: Vec<String> = authority.iter().map(|der| STANDARD.encode(der)).collect();
    format!("{}\n", json!({ "CACertificates": authorities }))
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(open(path, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the bundle of authorities is not a file"));
    }
    file.write_all(content)?;
    file.set_len(content.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_bundle_is_written_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bundle");
        assert_eq!(write(&path, b"").unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "x".repeat(10_000)).unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        write(&path, b"first and longer").unwrap();
        write(&path, b"second").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode);

        let link = directory.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(write(&link, b"").is_err(), "a link is not followed");
        assert!(write(directory.path(), b"").is_err());
    }

    #[test]
    fn all_files_have_the_authority_of_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let [bundle, java, chromium] = ["bundle", "java", "chromium"].map(|name| directory.path().join(name));
        let files = Trust { bundle, java, chromium };
        assert!(files.write(&Roots::default(), b"two").is_err(), "a file that is missing is not made");
        for file in [&files.bundle, &files.java, &files.chromium] {
            std::fs::write(file, "").unwrap();
        }
        files.write(&Roots::default(), b"two").unwrap();
        let text = std::fs::read_to_string(&files.bundle).unwrap();
        assert_eq!(text, "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n");
        assert_eq!(std::fs::read(&files.java).unwrap(), Roots::default().java_store(Some(b"two")));
        let policy = std::fs::read_to_string(&files.chromium).unwrap();
        assert_eq!(policy, "{\"CACertificates\":[\"dHdv\"]}\n");
        assert_eq!(chromium_policy(None), "{\"CACertificates\":[]}\n");
    }
}
