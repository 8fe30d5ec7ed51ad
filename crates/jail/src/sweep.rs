//! Removes the leftovers of a killed writer: exactly the temporary files that have a note, at the noted path.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, fsync, unlinkat};
use rustix::io::Errno;

use crate::access::Access;
use crate::error::OpenErrorKind;
use crate::jail::Jail;
use crate::meta::FileKind;
use crate::name::EntryName;
use crate::note::{directory_of, temporary_of};
use crate::path::SandboxPath;
use crate::private::{Keeps, Whose};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Swept {
    /// Number of temporary files that were removed.
    pub removed: usize,
    /// Number of notes whose file could be neither removed nor proved to be gone. The next sweep tries again.
    pub left: usize,
}

impl Jail {
    /// Removes the temporary files of operations that were killed.
    ///
    /// A file that an agent has given such a name is not touched, unless it is exactly where a temporary file was
    /// noted. If the directory was renamed meanwhile, the temporary file is not found and stays in the renamed
    /// directory.
    pub fn sweep(&self, whose: Whose) -> Result<Swept, std::io::Error> {
        let mut swept = Swept::default();
        let Some(private) = self.private() else { return Ok(swept) };
        let notes = private.open_or_make(Keeps::Temporaries)?;
        // All names are read, however many a hostile operation has made, so that they hide none. They are not collected.
        for entry in Dir::read_from(&notes)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(temporary) = temporary_of(name.to_bytes(), whose) else { continue };
            match self.remove_noted(&notes, name.to_bytes(), &temporary) {
                Ok(removed) => {
                    swept.removed += usize::from(removed);
                    match unlinkat(&notes, name, AtFlags::empty()) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(_) => swept.left += 1,
            }
        }
        Ok(swept)
    }

    /// Removes the temporary file of a note. Returns true if it existed.
    fn remove_noted(
        &self,
        notes: &OwnedFd,
        note: &[u8],
        temporary: &EntryName,
    ) -> Result<bool, OpenErrorKind> {
        let Some(place) = directory_of(notes, note)? else { return Ok(false) };
        if self.check_fixed(&place, Access::Write).is_err() {
            return Ok(false);
        }
        match self.remove(&place, temporary) {
            // The file or its directory is gone. No link is followed, and no other directory is searched.
            Err(OpenErrorKind::NotFound | OpenErrorKind::NotADirectory | OpenErrorKind::Symlink) => Ok(false),
            done => done,
        }
    }

    fn remove(&self, place: &SandboxPath, temporary: &EntryName) -> Result<bool, OpenErrorKind> {
        let Ok(root) = self.root(place.mount()) else { return Ok(false) };
        let directory = root.dir(place.rel())?;
        if directory.stat(temporary)?.kind != FileKind::File {
            return Ok(false);
        }
        unlinkat(&directory, temporary.as_bytes(), AtFlags::empty())?;
        // The caller then removes the note. After a power loss, the note must not be gone while the file is still
        // there.
        fsync(&directory)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notes_are_believed() {
        let digits = "0123456789abcdef0123456789abcdef";
        let note = |name: &str, whose| temporary_of(name.as_bytes(), whose).is_some();
        assert!(note(&format!("7.{digits}"), Whose::Everyone));
        assert!(note(&format!("7.{digits}"), Whose::Job(7)));
        assert!(!note(&format!("7.{digits}"), Whose::Job(77)));
        for name in ["", ".", "..", "7", "7.", "x.0", "7.../../etc/passwd", &format!("-7.{digits}"), digits] {
            assert!(!note(name, Whose::Everyone), "{name}");
        }
    }
}
