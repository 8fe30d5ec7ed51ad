//! Verifies an archive: its members, and the log in it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use audit::{Against, Checkpoint, Integrity, Report, VerifierKey};

use crate::format::{Head, LOG};
use crate::read::{ArchiveError, read};
use crate::unlinked::Unlinked;

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

/// Verifies an archive. The log takes space in the directory `place` meanwhile, in a file without a name.
pub fn check(archive: impl Read, place: &Path) -> Result<Checked, ArchiveError> {
    check_while(archive, place, Arc::new(AtomicBool::new(true)))
}

/// Verifies an archive like [`check`]. Fails once it is not wanted any longer.
pub(crate) fn check_while(
    archive: impl Read,
    place: &Path,
    is_wanted: Arc<AtomicBool>,
) -> Result<Checked, ArchiveError> {
    let mut log = Unlinked::beneath(place, is_wanted).map_err(ArchiveError::Write)?;
    let head = read(archive, None, &mut |name, content| match name.split_once('/') {
        Some((LOG, name)) => log.add(name, content),
        _ => io::copy(content, &mut io::sink()).map(drop),
    })?;
    check_log(head, |against| audit::verify_files(&log, against, &mut |_| {}))
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

/// Has the log verified with the checkpoint and the key that the backup names.
pub(crate) fn check_log(
    head: Head,
    verify: impl FnOnce(Against) -> io::Result<Report>,
) -> Result<Checked, ArchiveError> {
    let changed = |what: &str| ArchiveError::Changed(what.to_owned());
    let key: VerifierKey = head.verifier_key.parse().map_err(|_| changed("the log's key"))?;
    let checkpoint = Checkpoint::parse(&head.checkpoint).ok_or_else(|| changed("the log's checkpoint"))?;
    if checkpoint.size != head.log_size || !checkpoint.is_signed_by(&key) {
        return Err(changed("the log's checkpoint"));
    }
    let against =
        Against { checkpoints: vec![("the backup's".to_owned(), checkpoint)], ..Against::default() };
    let report = verify(against).map_err(ArchiveError::Archive)?;
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
