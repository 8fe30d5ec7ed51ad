//! A directory with the unpacked log of a backup. It is plain text where the backup is encrypted, so it must not stay.
//!
//! A verification runs in a thread, which nothing can end. So the thread stops by itself once the directory is no longer wanted: its
//! archive fails, and it makes no directory anew.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use crate::check::{Checked, check};
use crate::encrypted::open;
use crate::read::ArchiveError;

/// Attempts to remove the directory while its last file is still being made, and the time between two.
const ATTEMPTS: u32 = 50;
const AGAIN: Duration = Duration::from_millis(20);

/// The directory, until it is dropped. A drop removes it, also during a verification.
#[derive(Debug)]
pub struct Unpacked {
    place: TempDir,
    /// True while the files are wanted.
    is_wanted: Arc<AtomicBool>,
}

impl Unpacked {
    /// Makes a private directory beside a file.
    pub fn beside(file: &Path) -> io::Result<Self> {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let place = tempfile::tempdir_in(parent.unwrap_or(Path::new(".")))?;
        Ok(Self { place, is_wanted: Arc::new(AtomicBool::new(true)) })
    }

    /// Returns a function that verifies the backup in `file`, and blocks meanwhile.
    pub fn verify(
        &self,
        file: &Path,
        key_file: Option<&Path>,
    ) -> impl FnOnce() -> Result<Checked, ArchiveError> + Send + use<> {
        let (file, key_file) = (file.to_owned(), key_file.map(Path::to_owned));
        let (place, is_wanted) = (self.place.path().to_owned(), self.is_wanted.clone());
        move || {
            let archive = open(&file, key_file.as_deref()).map_err(ArchiveError::Open)?;
            check(WhileWanted { archive, is_wanted }, &place)
        }
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::SeqCst);
        for _ in 0..ATTEMPTS {
            match std::fs::remove_dir_all(self.place.path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(AGAIN),
                _ => return,
            }
        }
    }
}

/// Reader of an archive that fails once the files are no longer wanted.
struct WhileWanted<R> {
    archive: R,
    is_wanted: Arc<AtomicBool>,
}

impl<R: Read> Read for WhileWanted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_wanted.load(Ordering::SeqCst) {
            return self.archive.read(buffer);
        }
        Err(io::Error::other("the command was interrupted"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_an_interrupted_unpacking_stays() {
        let parent = tempfile::tempdir().unwrap();
        let unpacked = Unpacked::beside(&parent.path().join("a.backup")).unwrap();
        let place = unpacked.place.path().to_owned();
        let mut archive = WhileWanted { archive: io::repeat(7), is_wanted: unpacked.is_wanted.clone() };
        // Writes one file after the other, as an archive without end has them.
        let writer = std::thread::spawn(move || {
            let mut written = 0_u32;
            let mut portion = [0; 4_096];
            while archive.read_exact(&mut portion).is_ok() {
                if std::fs::write(place.join(written.to_string()), portion).is_err() {
                    break;
                }
                written += 1;
            }
            written
        });
        while std::fs::read_dir(unpacked.place.path()).unwrap().count() < 10 {
            std::thread::yield_now();
        }
        drop(unpacked);
        assert!(writer.join().unwrap() >= 10);
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}
