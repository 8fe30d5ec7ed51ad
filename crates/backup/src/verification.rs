//! The verification of a backup in a thread, which ends by itself when no caller waits for it any longer.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::check::{Checked, check_while};
use crate::encrypted::open;
use crate::read::ArchiveError;
use crate::unlinked::no_longer_wanted;

/// A verification. A drop ends it.
#[derive(Debug)]
pub struct Verification {
    /// True while somebody waits for it.
    is_wanted: Arc<AtomicBool>,
}

impl Verification {
    #[must_use]
    pub fn new() -> Self {
        Self { is_wanted: Arc::new(AtomicBool::new(true)) }
    }

    /// Returns a function that verifies the backup in `file`, and blocks meanwhile.
    ///
    /// It takes the space of the log and of its largest segment beside the file.
    pub fn of(
        &self,
        file: &Path,
        key_file: Option<&Path>,
    ) -> impl FnOnce() -> Result<Checked, ArchiveError> + Send + use<> {
        let (file, key_file) = (file.to_owned(), key_file.map(Path::to_owned));
        let is_wanted = self.is_wanted.clone();
        move || {
            let archive = open(&file, key_file.as_deref()).map_err(ArchiveError::Open)?;
            let place = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            let archive = WhileWanted { archive, is_wanted: is_wanted.clone() };
            check_while(archive, place.unwrap_or(Path::new(".")), is_wanted)
        }
    }
}

impl Default for Verification {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Verification {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::SeqCst);
    }
}

/// Reader of an archive that fails once no caller waits for it.
struct WhileWanted<R> {
    archive: R,
    is_wanted: Arc<AtomicBool>,
}

impl<R: Read> Read for WhileWanted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_wanted.load(Ordering::SeqCst) {
            return self.archive.read(buffer);
        }
        Err(no_longer_wanted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_verification_ends_by_itself() {
        let verification = Verification::new();
        let mut archive = WhileWanted { archive: io::repeat(7), is_wanted: verification.is_wanted.clone() };
        let (began, begins) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            let mut portion = [0; 4_096];
            archive.read_exact(&mut portion).unwrap();
            began.send(()).unwrap();
            // The archive has no end.
            io::copy(&mut archive, &mut io::sink()).unwrap_err()
        });
        begins.recv().unwrap();
        drop(verification);
        assert_eq!(reader.join().unwrap().to_string(), "the command was interrupted");
    }
}
