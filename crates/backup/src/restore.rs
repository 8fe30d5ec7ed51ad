//! Restores an archive into an empty state directory, and tells the next daemon about it.
//!
//! ```text
//!  empty ──lock──► `restoring` ──members, verified──► `restored.json`, without `restoring` ──daemon──► its first record, without both
//!                       └─ failure: empty again ─ kill: `restoring` stays, and no daemon starts beside it
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use timestamp::UnixMillis;

use crate::check::{Checked, check_log, is_database, put};
use crate::format::{LOG, LONGEST_HEAD, STORE};
use crate::read::{ArchiveError, read};

/// Name of the file that is in a state directory while a backup is restored into it.
pub const UNFINISHED: &str = "restoring";
/// Name of the file for the next daemon.
const RESTORED: &str = "restored.json";
/// Name of the file that a daemon locks.
const LOCK: &str = "lock";

/// Reason why a backup was not restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The directory has files. A restore never replaces any.
    #[error("{0} is not empty: name a state directory that is empty, or that does not exist yet")]
    NotEmpty(PathBuf),
    /// A daemon, or another restore, uses the directory.
    #[error("{0} is in use: stop the daemon")]
    InUse(PathBuf),
    #[error("cannot write in the state directory")]
    Io(#[from] io::Error),
}

/// Description of a restored backup, which the next daemon records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restored {
    pub backup_id: String,
    /// Time at which the backup was begun, milliseconds since the epoch.
    pub made_at_ms: u64,
    pub restored_at_ms: u64,
    /// Release of the daemon that made the backup.
    pub release: String,
    /// Last record of the restored log.
    pub last_sequence: u64,
    pub last_hash: String,
}

/// Restores an archive into `state_dir`, which is empty or does not exist. Fails without a trace otherwise.
///
/// With `expected` the SHA-256 of the archive must be this one, in hex. For an encrypted one it is that of what was encrypted.
pub fn restore(
    archive: impl Read,
    expected: Option<&str>,
    state_dir: &Path,
) -> Result<Restored, RestoreError> {
    match DirBuilder::new().mode(0o711).create(state_dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error.into()),
        _ => {}
    }
    if fs::read_dir(state_dir)?.next().is_some() {
        return Err(RestoreError::NotEmpty(state_dir.to_owned()));
    }
    let lock = File::create_new(state_dir.join(LOCK)).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => RestoreError::InUse(state_dir.to_owned()),
        _ => error.into(),
    })?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| RestoreError::InUse(state_dir.to_owned()))?;
    let restored = fill(archive, expected, state_dir);
    if restored.is_err() {
        // All of it was made here, while the lock was held. The first error counts.
        let _ = clear(state_dir);
    }
    restored
}

fn fill(archive: impl Read, expected: Option<&str>, state_dir: &Path) -> Result<Restored, RestoreError> {
    File::create_new(state_dir.join(UNFINISHED))?.sync_all()?;
    sync(state_dir)?;
    let head = read(archive, expected, &mut |name, content| {
        let file = put(state_dir, name, content)?;
        if name == STORE && !is_database(&file)? {
            return Err(io::Error::new(ErrorKind::InvalidData, "the store is no database"));
        }
        file.sync_all()
    })?;
    let Checked { head, last_sequence, last_hash, .. } =
        check_log(head, |against| audit::verify_with(&state_dir.join(LOG), against, &mut |_| {}))?;
    let restored = Restored {
        backup_id: head.backup_id,
        made_at_ms: head.made_at_ms,
        restored_at_ms: UnixMillis::now().0,
        release: head.release,
        last_sequence,
        last_hash,
    };
    let text = serde_json::to_vec_pretty(&restored).map_err(io::Error::other)?;
    for directory in [LOG, "audit/checkpoints", "keys", "usage"] {
        match sync(&state_dir.join(directory)) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    atomic_file::replace(&state_dir.join(RESTORED), |file| file.write_all(&text))?;
    fs::remove_file(state_dir.join(UNFINISHED))?;
    sync(state_dir)?;
    Ok(restored)
}

/// Removes what a restore has written. The lock goes last, and with it the directory is empty.
fn clear(state_dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(state_dir)? {
        let entry = entry?;
        if entry.file_name() == LOCK {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(state_dir.join(LOCK))
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the backup from which this state directory continues, if no daemon has recorded it yet.
pub fn continued(state_dir: &Path) -> io::Result<Option<Restored>> {
    let Some(text) = atomic_file::read(&state_dir.join(RESTORED), LONGEST_HEAD)? else { return Ok(None) };
    let restored =
        serde_json::from_slice(&text).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    Ok(Some(restored))
}

/// Notes that a daemon has recorded the restore.
pub fn settled(state_dir: &Path) -> io::Result<()> {
    fs::remove_file(state_dir.join(RESTORED))?;
    sync(state_dir)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
