//! Undoes one step, based on the current state of the two names. Undoing it twice is the same as undoing it once.
//!
//! Used by the process that took the step, and by one that finds its journal.

use rustix::fs::{AtFlags, RenameFlags, renameat_with, unlinkat};
use rustix::io::Errno;

use super::error::LeftState;
use crate::dir::Dir;
use crate::meta::FileKind;
use crate::name::EntryName;

/// Kind of change of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// File and shadow exchange names.
    Exchange,
    /// The shadow becomes the file.
    Create,
    /// The file becomes the shadow.
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reverted {
    Done,
    /// The step was not undone, because another process has interfered.
    Not(LeftState),
}

/// The file that a name refers to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Nothing,
    New,
    /// A different file, of any kind.
    Other,
}

/// Restores `name` to its old state, and removes `shadow`. `inode` is the new file's.
pub(super) fn revert(
    dir: &Dir,
    name: &EntryName,
    shadow: &EntryName,
    kind: Kind,
    inode: u64,
) -> Result<Reverted, Errno> {
    let pair = Pair { dir, name, shadow, inode };
    match kind {
        Kind::Exchange => pair.exchange_back(),
        Kind::Create => pair.uncreate(),
        Kind::Remove => pair.restore(),
    }
}

struct Pair<'p> {
    dir: &'p Dir,
    name: &'p EntryName,
    shadow: &'p EntryName,
    inode: u64,
}

impl Pair<'_> {
    fn exchange_back(&self) -> Result<Reverted, Errno> {
        match (self.now(self.name)?, self.now(self.shadow)?) {
            (Now::New, Now::Nothing) => Ok(Reverted::Not(LeftState::New)),
            (Now::New, _) => {
                self.rename(self.shadow, self.name, RenameFlags::EXCHANGE)?;
                if self.now(self.shadow)? != Now::New {
                    // Another process changed the name first. Exchanging again returns its file to where it was.
                    self.rename(self.shadow, self.name, RenameFlags::EXCHANGE)?;
                    return Err(Errno::AGAIN);
                }
                self.drop_shadow(Reverted::Done)
            }
            // The step was not taken, or is undone already.
            (_, Now::New) => self.drop_shadow(Reverted::Done),
            (Now::Nothing, Now::Nothing) => Ok(Reverted::Not(LeftState::Gone)),
            (Now::Other, Now::Nothing) => Ok(Reverted::Done),
            (_, Now::Other) => self.restore(),
        }
    }

    fn uncreate(&self) -> Result<Reverted, Errno> {
        match (self.now(self.name)?, self.now(self.shadow)?) {
            (Now::New, shadow) => {
                if shadow != Now::Nothing {
                    self.unlink_shadow()?;
                }
                // Renames to the shadow's name first, so that another process's file is never removed.
                self.rename(self.name, self.shadow, RenameFlags::NOREPLACE)?;
                if self.now(self.shadow)? != Now::New {
                    self.rename(self.shadow, self.name, RenameFlags::NOREPLACE)?;
                    return Err(Errno::AGAIN);
                }
                self.drop_shadow(Reverted::Done)
            }
            (Now::Nothing, _) => self.drop_shadow(Reverted::Done),
            (Now::Other, _) => self.drop_shadow(Reverted::Not(LeftState::Theirs)),
        }
    }

    /// Restores the old file from the shadow, if there is one.
    fn restore(&self) -> Result<Reverted, Errno> {
        match (self.now(self.name)?, self.now(self.shadow)?) {
            (Now::Nothing, Now::Nothing) => Ok(Reverted::Not(LeftState::Gone)),
            (_, Now::Nothing) => Ok(Reverted::Done),
            (Now::Nothing, _) => match self.rename(self.shadow, self.name, RenameFlags::NOREPLACE) {
                Ok(()) => Ok(Reverted::Done),
                Err(Errno::EXIST) => self.drop_shadow(Reverted::Not(LeftState::Theirs)),
                Err(errno) => Err(errno),
            },
            _ => self.drop_shadow(Reverted::Not(LeftState::Theirs)),
        }
    }

    fn now(&self, name: &EntryName) -> Result<Now, Errno> {
        match self.dir.stat(name) {
            Ok(meta) if self.inode != 0 && meta.kind == FileKind::File && meta.identity.1 == self.inode => {
                Ok(Now::New)
            }
            Ok(_) => Ok(Now::Other),
            Err(Errno::NOENT) => Ok(Now::Nothing),
            Err(errno) => Err(errno),
        }
    }

    fn rename(&self, from: &EntryName, to: &EntryName, flags: RenameFlags) -> Result<(), Errno> {
        renameat_with(self.dir, from.as_bytes(), self.dir, to.as_bytes(), flags)
    }

    fn drop_shadow(&self, reverted: Reverted) -> Result<Reverted, Errno> {
        self.unlink_shadow().map(|()| reverted)
    }

    fn unlink_shadow(&self) -> Result<(), Errno> {
        match unlinkat(self.dir, self.shadow.as_bytes(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}
