//! The key that signs checkpoints. Its file is outside of the log, so that a copy of the log contains no copy of the key.
//!
//! ```text
//!  rotate:  KEY.next (new) ──► record `audit_key`, signed by the old key ──► rename to KEY
//!                 crash before the record: forgotten ┘            └ fault after it: renamed when the log is opened again
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use crate::checkpoint::{Checkpoint, handover, origin};
use crate::hash::LogId;
use crate::note::{SecretKey, VerifierKey};
use crate::tree::Tree;

/// Length of the longest key file, in bytes.
const LONGEST: u64 = 4096;

/// Reason why there is no key for signatures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignerError {
    /// The file exists but does not contain a key of this log.
    #[error(
        "{0} does not hold this audit log's key; if you move it away, a new key is created, which no \
         earlier checkpoint confirms"
    )]
    NoKey(PathBuf),
    /// Other users may access the file.
    #[error("{0} must be accessible to its owner only (mode 0600)")]
    Exposed(PathBuf),
    #[error("cannot read or write the audit log's key")]
    Io(#[from] io::Error),
}

/// Signs checkpoints of one log.
#[derive(Debug)]
pub struct Signer {
    path: PathBuf,
    log: LogId,
    secret: SecretKey,
}

impl Signer {
    /// Opens the key in `path`, or creates one if the file does not exist.
    ///
    /// `in_force` is the last key that the log names. It shows whether an unfinished rotation takes effect.
    pub(crate) fn open(path: &Path, log: LogId, in_force: Option<&VerifierKey>) -> Result<Self, SignerError> {
        let next_path = next_path(path);
        if let Some(next) = read(&next_path, log)? {
            if in_force == Some(next.public()) {
                fs::rename(&next_path, path)?;
            } else {
                fs::remove_file(&next_path)?;
            }
            sync_parent(path)?;
        }
        let secret = match read(path, log)? {
            Some(secret) => secret,
            None => create(path, log)?,
        };
        Ok(Self { path: path.to_owned(), log, secret })
    }

    /// Returns a key that is always the same, and is not on a disk.
    #[cfg(test)]
    pub(crate) fn fixed(log: LogId, seed: u8) -> Self {
        Self { path: PathBuf::new(), log, secret: SecretKey::new(&origin(log), &[seed; 32]) }
    }

    pub fn verifier_key(&self) -> &VerifierKey {
        self.secret.public()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn checkpoint(&self, tree: &Tree) -> Checkpoint {
        Checkpoint::sign(self.log, tree, &self.secret)
    }

    /// Creates the next key, and the note by which this key vouches for it.
    pub(crate) fn prepare(&self) -> Result<(VerifierKey, String), SignerError> {
        let path = next_path(&self.path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let next = create(&path, self.log)?;
        Ok((next.public().clone(), self.vouch(next.public())))
    }

    /// Returns the note by which this key hands over to the next one.
    pub(crate) fn vouch(&self, next: &VerifierKey) -> String {
        self.secret.sign(&handover(self.log, next))
    }

    /// Switches to the prepared key, after the log has named it. After an error, the key in memory is still the old one.
    pub(crate) fn switch(&mut self) -> Result<(), SignerError> {
        let next_path = next_path(&self.path);
        let secret = read(&next_path, self.log)?.ok_or(SignerError::NoKey(next_path.clone()))?;
        fs::rename(&next_path, &self.path)?;
        sync_parent(&self.path)?;
        self.secret = secret;
        Ok(())
    }
}

fn next_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

fn read(path: &Path, log: LogId) -> Result<Option<SecretKey>, SignerError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(SignerError::Exposed(path.to_owned()));
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    let key = SecretKey::decode(text.trim_end()).filter(|key| key.public().name() == origin(log));
    key.map(Some).ok_or_else(|| SignerError::NoKey(path.to_owned()))
}

/// Creates a key on the disk, either completely or not at all.
fn create(path: &Path, log: LogId) -> Result<SecretKey, SignerError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.is_dir()) {
        DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        sync_parent(parent)?;
    }
    let mut seed = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut seed)?;
    let key = SecretKey::new(&origin(log), &seed);
    atomic_file::replace(path, |file| writeln!(file, "{}", key.encode()))?;
    Ok(key)
}

fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::testing::log_id;

    fn open(path: &Path, in_force: Option<&VerifierKey>) -> Result<Signer, SignerError> {
        Signer::open(path, log_id(), in_force)
    }

    #[test]
    fn a_key_is_created_once_and_readable_only_by_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys/audit.key");
        let first = open(&path, None).unwrap().verifier_key().clone();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(open(&path, Some(&first)).unwrap().verifier_key(), &first);

        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(open(&path, None), Err(SignerError::Exposed(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let other: LogId = "ffffffffffffffffffffffffffffffff".parse().unwrap();
        assert!(matches!(Signer::open(&path, other, None), Err(SignerError::NoKey(_))));
        fs::write(&path, "nonsense").unwrap();
        assert!(matches!(open(&path, None), Err(SignerError::NoKey(_))));
    }

    #[test]
    fn an_interrupted_rotation_counts_if_the_log_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.key");
        let signer = open(&path, None).unwrap();
        let first = signer.verifier_key().clone();
        signer.prepare().unwrap();
        // Crash before the record: as if nothing had been.
        assert_eq!(open(&path, Some(&first)).unwrap().verifier_key(), &first);
        assert!(!next_path(&path).exists());
        // Crash behind it.
        let (second, _) = signer.prepare().unwrap();
        assert_eq!(open(&path, Some(&second)).unwrap().verifier_key(), &second);
        assert_eq!(open(&path, Some(&second)).unwrap().verifier_key(), &second);
        assert!(!next_path(&path).exists());
    }
}
