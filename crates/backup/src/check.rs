//! Verifies an archive: its members, and the log in it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use audit::{Against, Checkpoint, Integrity, VerifierKey};

use crate::format::{Head, LOG};
use crate::read::{ArchiveError, read};

/// First bytes of a database.
const DATABASE: &[u8] = b"SQLite format 3\0";

/// A backup that was verified.
#[derive(Debug)]
pub struct Checked {
    pub head: Head,
    /// Number of records of its log.
    pub records: u64,
    /// Last record of its log.
    pub last_sequence: u64,
    pub last_hash: String,
}

/// Verifies an archive. The log is written to `place`, a private and empty directory, and stays there.
pub fn check(archive: impl Read, place: &Path) -> Result<Checked, ArchiveError> {
    let head = read(archive, None, &mut |name, content| match name.strip_prefix("audit/") {
        Some(_) => put(place, name, content).map(drop),
        None => io::copy(content, &mut io::sink()).map(drop),
    })?;
    check_log(&place.join(LOG), head)
}

/// Writes a member as a new file beneath `place`. The name is one of those that a backup can have.
pub(crate) fn put(place: &Path, name: &str, content: &mut dyn Read) -> io::Result<File> {
    let path = place.join(name);
    // Not `place` itself: where the caller has removed it, nothing is written any longer.
    let mut parent = place.to_owned();
    for directory in Path::new(name).parent().into_iter().flat_map(Path::components) {
        parent.push(directory);
        match DirBuilder::new().mode(0o700).create(&parent) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let mut file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(content, &mut file)?;
    Ok(file)
}

/// Returns true if a file begins as a database.
pub(crate) fn is_database(file: &File) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let mut first = [0; 16];
    Ok(file.read_at(&mut first, 0)? == DATABASE.len() && first == DATABASE)
}

/// Verifies the log in a directory, with the checkpoint and the key that the backup names.
pub(crate) fn check_log(log: &Path, head: Head) -> Result<Checked, ArchiveError> {
    let changed = |what: &str| ArchiveError::Changed(what.to_owned());
    let key: VerifierKey = head.verifier_key.parse().map_err(|_| changed("the log's key"))?;
    let checkpoint = Checkpoint::parse(&head.checkpoint).ok_or_else(|| changed("the log's checkpoint"))?;
    if checkpoint.size != head.log_size || !checkpoint.is_signed_by(&key) {
        return Err(changed("the log's checkpoint"));
    }
    let against =
        Against { checkpoints: vec![("the backup's".to_owned(), checkpoint)], ..Against::default() };
    let report = audit::verify_with(log, against, &mut |_| {}).map_err(ArchiveError::Archive)?;
    if let Integrity::Broken(broken) = &report.integrity {
        return Err(ArchiveError::Changed(format!("the audit log ({broken})")));
    }
    let last = report.head.ok_or_else(|| ArchiveError::Missing("the audit log".to_owned()))?;
    if last.sequence < head.log_size || !report.keys.contains(&head.verifier_key) {
        return Err(changed("the audit log"));
    }
    Ok(Checked {
        head,
        records: report.records,
        last_sequence: last.sequence,
        last_hash: last.hash.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written_beneath_a_place_and_nowhere_without_it() {
        let parent = tempfile::tempdir().unwrap();
        let place = parent.path().join("place");
        std::fs::create_dir(&place).unwrap();
        for name in ["store.db", "audit/checkpoints/a", "audit/checkpoints/b"] {
            put(&place, name, &mut &b"x"[..]).unwrap();
            assert_eq!(std::fs::read(place.join(name)).unwrap(), b"x");
        }
        std::fs::remove_dir_all(&place).unwrap();
        let failed = put(&place, "audit/checkpoints/c", &mut &b"x"[..]).unwrap_err();
        assert_eq!((failed.kind(), place.exists()), (io::ErrorKind::NotFound, false));
    }
}
