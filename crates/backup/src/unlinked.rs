//! The log of a backup while it is verified, in a file without a name.
//!
//! The log is plain text where the backup is encrypted, so it must not stay. The kernel frees the file with its process, also after a kill.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use audit::LogFiles;

/// Bytes of one copy.
const PORTION: usize = 64 * 1024;

/// The files of a log, one after the other in one file.
pub(crate) struct Unlinked {
    /// Directory of the file, which gets no entry.
    place: PathBuf,
    all: File,
    length: u64,
    /// Position and length of each file.
    parts: BTreeMap<String, (u64, u64)>,
    /// True while somebody waits for the verification.
    is_wanted: Arc<AtomicBool>,
}

impl Unlinked {
    /// Makes the file in the file system of a directory.
    pub(crate) fn beneath(place: &Path, is_wanted: Arc<AtomicBool>) -> io::Result<Self> {
        let all = tempfile::tempfile_in(place)?;
        Ok(Self { place: place.to_owned(), all, length: 0, parts: BTreeMap::new(), is_wanted })
    }

    /// Adds a file of the log.
    pub(crate) fn add(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let copied = io::copy(content, &mut self.all)?;
        self.parts.insert(name.to_owned(), (self.length, copied));
        self.length += copied;
        Ok(())
    }
}

impl LogFiles for Unlinked {
    fn names(&self, beneath: Option<&str>) -> io::Result<Vec<String>> {
        let of = |name: &String| match (beneath, name.split_once('/')) {
            (None, None) => Some(name.clone()),
            (Some(beneath), Some((directory, rest))) => (directory == beneath).then(|| rest.to_owned()),
            _ => None,
        };
        Ok(self.parts.keys().filter_map(of).collect())
    }

    /// Opens a copy of a file, which has no name, either.
    fn open(&self, name: &str) -> io::Result<Option<File>> {
        if !self.is_wanted.load(Ordering::SeqCst) {
            return Err(no_longer_wanted());
        }
        let Some((mut from, length)) = self.parts.get(name).copied() else { return Ok(None) };
        let mut copy = tempfile::tempfile_in(&self.place)?;
        let (end, mut portion) = (from + length, vec![0; PORTION]);
        while from < end {
            let most = usize::try_from(end - from).unwrap_or(PORTION).min(PORTION);
            self.all.read_exact_at(&mut portion[..most], from)?;
            io::Write::write_all(&mut copy, &portion[..most])?;
            from += most as u64;
        }
        copy.seek(SeekFrom::Start(0))?;
        Ok(Some(copy))
    }

    fn length(&self, name: &str) -> io::Result<u64> {
        let part = self.parts.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(part.1)
    }
}

/// Returns the error of a verification that was interrupted.
pub(crate) fn no_longer_wanted() -> io::Error {
    io::Error::other("the command was interrupted")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_as_they_were_added_and_have_no_name() {
        let place = tempfile::tempdir().unwrap();
        let mut log = Unlinked::beneath(place.path(), Arc::new(AtomicBool::new(true))).unwrap();
        let content = vec![7; 2 * PORTION + 1];
        for (name, content) in [("removed", &b"r"[..]), ("checkpoints/a", b""), ("1.jsonl", &content)] {
            log.add(name, &mut &*content).unwrap();
        }
        assert_eq!(log.names(None).unwrap(), ["1.jsonl", "removed"]);
        assert_eq!(log.names(Some("checkpoints")).unwrap(), ["a"]);
        assert!(log.names(Some("check")).unwrap().is_empty());
        for (name, content) in [("removed", &b"r"[..]), ("checkpoints/a", b""), ("1.jsonl", &content)] {
            let mut read = Vec::new();
            log.open(name).unwrap().unwrap().read_to_end(&mut read).unwrap();
            assert!(read == content && log.length(name).unwrap() == content.len() as u64, "{name}");
        }
        assert!(log.open("2.jsonl").unwrap().is_none() && log.length("2.jsonl").is_err());
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        log.is_wanted.store(false, Ordering::SeqCst);
        assert!(log.open("removed").is_err(), "a verification that is not wanted goes on");
    }
}
