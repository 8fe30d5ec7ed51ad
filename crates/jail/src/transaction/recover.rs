//! Recovers transactions after a crash: uncommitted ones are undone, committed ones are completed.

use rustix::fs::{AtFlags, fsync, unlinkat};
use rustix::io::Errno;

use super::error::{Left, LeftState};
use super::journal::{self, Entries, Entry, Stage};
use super::remove_directories;
use super::revert::{Reverted, revert};
use crate::access::Access;
use crate::dir::Dir;
use crate::error::OpenErrorKind;
use crate::jail::Jail;
use crate::name::EntryName;
use crate::private::{Keeps, Whose};
use crate::turn::Turn;

/// Result of recovering one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchRecovery {
    pub recovery: Recovery,
    /// Files with neither their old nor their new state. Another process has interfered.
    pub left: Vec<Left>,
    /// True if recovery is complete; otherwise the next recovery tries again.
    pub finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Every file has its old state.
    RolledBack,
    /// Every file has its new state.
    Completed,
}

impl Jail {
    /// Undoes or completes each transaction of `whose`, and removes its leftovers.
    ///
    /// Must be called before [`Jail::sweep`], which would remove the shadows as temporary files.
    pub fn recover_patches(&self, whose: Whose) -> std::io::Result<Vec<PatchRecovery>> {
        let Some(private) = self.private() else { return Ok(Vec::new()) };
        let _turn = Turn::of_changes(private)?;
        let directory = private.open_or_make(Keeps::Patches)?;
        let mut recovered = Vec::new();
        // All names are read, however many a hostile operation has made, so that they hide no journal. They are not collected.
        for file in rustix::fs::Dir::read_from(&directory)? {
            let file = file?;
            let Some((name, stage)) = journal::parse(file.file_name(), whose) else { continue };
            let recovery = match (stage, journal::read(&directory, name)) {
                // No file had been changed.
                (Stage::Part, _) | (_, None) => None,
                (Stage::Patch, Some(entries)) => Some(self.roll_back(&entries)),
                (Stage::Done, Some(entries)) => Some(self.complete(&entries)),
            };
            if recovery.as_ref().is_none_or(|recovery| recovery.finished) {
                match unlinkat(&directory, name, AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
            recovered.extend(recovery);
        }
        Ok(recovered)
    }

    fn roll_back(&self, entries: &Entries) -> PatchRecovery {
        let (mut left, mut finished) = (Vec::new(), true);
        for entry in entries.steps.iter().rev() {
            let state = match self.at(entry) {
                Ok((dir, name)) => match revert(&dir, &name, &entry.shadow, entry.kind, entry.inode)
                    .and_then(|reverted| fsync(&dir).map(|()| reverted))
                {
                    Ok(Reverted::Done) => None,
                    Ok(Reverted::Not(state)) => Some(state),
                    Err(_) => {
                        finished = false;
                        Some(LeftState::Unknown)
                    }
                },
                // The directory was moved, or replaced by a link. It is not searched for.
                Err(_) => Some(LeftState::Unknown),
            };
            left.extend(state.map(|state| Left { path: entry.path.excerpt(), state }));
        }
        remove_directories(self, &entries.made);
        PatchRecovery { recovery: Recovery::RolledBack, left, finished }
    }

    fn complete(&self, entries: &Entries) -> PatchRecovery {
        let mut finished = true;
        for entry in &entries.steps {
            let Ok((dir, _)) = self.at(entry) else { continue };
            match unlinkat(&dir, entry.shadow.as_bytes(), AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(_) => finished = false,
            }
        }
        PatchRecovery { recovery: Recovery::Completed, left: Vec::new(), finished }
    }

    /// Returns the directory and the name of an entry's file.
    fn at(&self, entry: &Entry) -> Result<(Dir, EntryName), OpenErrorKind> {
        self.check_fixed(&entry.path, Access::Write).map_err(|_| OpenErrorKind::Inexpressible)?;
        let root = self.root(entry.path.mount()).map_err(|_| OpenErrorKind::NotFound)?;
        let (above, name) = entry.path.rel().split_last().ok_or(OpenErrorKind::IsADirectory)?;
        Ok((root.dir(&above)?, name))
    }
}
