//! Keeps sessions over a restart of the daemon, so that its reviewers can go on.
//!
//! Only sessions of users of this host are kept. The file has the digests of their cookies, and is sealed with the daemon's key, so that
//! none can be added. A token is kept nowhere but in memory, so its holder signs in again; so does the holder of a certificate.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use seal::Seal;
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

const NAME: &str = "console.sessions";
const KEY: &str = "seal.key";
/// Context of the sealed file.
const CONTEXT: &str = "sessions of the console";
/// Most bytes of the file: 256 sessions are fewer.
const LARGEST: u64 = 1 << 20;

/// A session of a user of this host, as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptSession {
    pub(crate) key: [u8; 32],
    pub(crate) csrf: String,
    pub(crate) name: String,
    pub(crate) opened_at: UnixMillis,
    pub(crate) used_at: UnixMillis,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// The file of sessions.
pub(crate) struct Kept {
    path: PathBuf,
    seal: Seal,
}

impl Kept {
    /// Opens the file in the state directory of the daemon. It need not exist.
    pub(crate) fn open(state_dir: &Path) -> io::Result<Self> {
        Ok(Self { path: state_dir.join(NAME), seal: Seal::open(&state_dir.join(KEY))? })
    }

    /// Reads the sessions. A file that cannot be read has none: people sign in again.
    pub(crate) fn read(&self) -> Vec<KeptSession> {
        self.try_read().unwrap_or_else(|error| {
            tracing::warn!(%error, "the sessions of the console cannot be read: people sign in again");
            Vec::new()
        })
    }

    fn try_read(&self) -> io::Result<Vec<KeptSession>> {
        let Some(sealed) = atomic_file::read(&self.path, LARGEST)? else { return Ok(Vec::new()) };
        let plain = self.seal.unseal(CONTEXT, &sealed).map_err(io::Error::other)?;
        serde_json::from_slice(&plain).map_err(io::Error::other)
    }

    /// Replaces the file.
    pub(crate) fn write(&self, sessions: &[KeptSession]) -> io::Result<()> {
        let plain = serde_json::to_vec(sessions).map_err(io::Error::other)?;
        let sealed = self.seal.seal(CONTEXT, &plain).map_err(io::Error::other)?;
        atomic_file::replace(&self.path, |file| file.write_all(&sealed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_as_they_were_written_and_are_sealed() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::open(directory.path()).unwrap();
        assert_eq!(kept.read(), []);
        let sessions = [KeptSession {
            key: [7; 32],
            csrf: "s3cret".into(),
            name: "uid:7".into(),
            opened_at: UnixMillis(1),
            used_at: UnixMillis(2),
            uid: 7,
            gid: 8,
        }];
        kept.write(&sessions).unwrap();
        assert_eq!(kept.read(), sessions);
        assert_eq!(Kept::open(directory.path()).unwrap().read(), sessions);

        let path = directory.path().join(NAME);
        let mut sealed = std::fs::read(&path).unwrap();
        assert!(!String::from_utf8_lossy(&sealed).contains("s3cret"));
        let last = sealed.len() - 1;
        sealed[last] ^= 1;
        std::fs::write(&path, sealed).unwrap();
        assert_eq!(kept.read(), [], "a changed file opens nothing");
    }
}
