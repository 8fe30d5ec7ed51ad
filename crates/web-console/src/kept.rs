//! Keeps sessions over a restart of the daemon, so that its reviewers can go on.
//!
//! The file is sealed with the daemon's key. It has the digests of cookies and not the cookies, but tokens as they were sent, since
//! each request shows its token again. Sessions of client certificates are not kept: their holder shows the certificate again.

#![expect(clippy::disallowed_methods, reason = "a file of the daemon's own: console.sessions")]

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use seal::Seal;
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use crate::access::{Identity, Token};

const NAME: &str = "console.sessions";
const KEY: &str = "seal.key";
/// Context of the sealed file.
const CONTEXT: &str = "sessions of the console";
/// Most bytes of the file: 256 sessions with the longest tokens are fewer.
const LARGEST: u64 = 8 << 20;

/// A session as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptSession {
    pub(crate) key: [u8; 32],
    pub(crate) csrf: String,
    pub(crate) name: String,
    pub(crate) opened_at: UnixMillis,
    pub(crate) used_at: UnixMillis,
    pub(crate) identity: KeptIdentity,
}

/// A credential as the file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeptIdentity {
    User {
        uid: u32,
        gid: u32,
    },
    /// Value of the header.
    Token(String),
}

impl KeptIdentity {
    /// Returns none for an identity that is not kept.
    pub(crate) fn of(identity: &Identity) -> Option<Self> {
        match identity {
            Identity::User { uid, gid } => Some(Self::User { uid: *uid, gid: *gid }),
            Identity::Token(token) => Some(Self::Token(token.authorization().to_str().ok()?.to_owned())),
            Identity::Certificate(_) => None,
        }
    }

    pub(crate) fn identity(self) -> Option<Identity> {
        match self {
            Self::User { uid, gid } => Some(Identity::User { uid, gid }),
            Self::Token(value) => Token::sent(value.parse().ok()?).map(Identity::Token),
        }
    }
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
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        let mut sealed = Vec::new();
        file.take(LARGEST).read_to_end(&mut sealed)?;
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

    fn session(identity: KeptIdentity) -> KeptSession {
        KeptSession {
            key: [7; 32],
            csrf: "c".into(),
            name: "uid:7".into(),
            opened_at: UnixMillis(1),
            used_at: UnixMillis(2),
            identity,
        }
    }

    #[test]
    fn sessions_are_read_as_they_were_written_and_are_sealed() {
        let directory = tempfile::tempdir().unwrap();
        let kept = Kept::open(directory.path()).unwrap();
        assert_eq!(kept.read(), []);
        let sessions = [
            session(KeptIdentity::User { uid: 7, gid: 8 }),
            session(KeptIdentity::Token("Bearer s3cret".into())),
        ];
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

    #[test]
    fn a_credential_survives_and_a_certificate_does_not() {
        let token = Identity::Token(Token::parse("abc").unwrap());
        let kept = KeptIdentity::of(&token).unwrap();
        assert_eq!(kept, KeptIdentity::Token("Bearer abc".into()));
        assert!(
            matches!(kept.identity(), Some(Identity::Token(again)) if again == Token::parse("abc").unwrap())
        );
        let shown = tonic::codegen::http::Extensions::new();
        let certificate = crate::Certificate { name: "op".into(), shown };
        assert!(KeptIdentity::of(&Identity::Certificate(certificate)).is_none());
    }
}
