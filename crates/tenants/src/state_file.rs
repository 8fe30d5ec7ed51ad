//! The file in JSON in which a part of the state of tenants outlives the daemon.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest file, bytes.
const LONGEST: u64 = 16 << 20;

/// A file of the daemon's own.
#[derive(Debug)]
pub(crate) struct StateFile {
    path: PathBuf,
    /// Held while the file is written, so that no older state replaces a newer one.
    writing: Mutex<()>,
}

impl StateFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), writing: Mutex::default() }
    }

    /// Reads the file. `None` if there is none.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        let text = atomic_file::read(&self.path, LONGEST)?;
        Ok(text.map(|text| serde_json::from_slice(&text)).transpose()?)
    }

    /// Writes the state that `take` returns; nothing if that is none. Blocks on the disk.
    ///
    /// If it cannot be written, `again` has the next write take it once more.
    pub(crate) fn write<T: Serialize>(
        &self,
        take: impl FnOnce() -> Option<T>,
        again: impl FnOnce(),
    ) -> io::Result<()> {
        let _writing = self.writing.lock();
        let Some(state) = take() else { return Ok(()) };
        let text = serde_json::to_vec(&state).map_err(io::Error::other);
        let written = text.and_then(|text| atomic_file::replace(&self.path, |file| file.write_all(&text)));
        if written.is_err() {
            again();
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_state_that_cannot_be_written_is_taken_again() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("later");
        let file = StateFile::new(&missing.join("state.json"));
        let is_changed = Cell::new(true);
        let write = || file.write(|| is_changed.take().then_some([1, 2]), || is_changed.set(true));
        assert!(write().is_err() && is_changed.get());
        std::fs::create_dir(&missing).unwrap();
        assert_eq!(file.read::<Vec<u8>>().unwrap(), None);
        write().unwrap();
        assert!(!is_changed.get());
        assert_eq!(file.read::<Vec<u8>>().unwrap(), Some(vec![1, 2]));
        std::fs::remove_file(missing.join("state.json")).unwrap();
        write().unwrap();
        assert_eq!(file.read::<Vec<u8>>().unwrap(), None, "nothing has changed");
    }
}
