//! Takes one step back, from the present state of the two names: for the process that took it, and for one that finds its
//! journal. Doing it twice is the same as doing it once.

use rustix::fs::{AtFlags, RenameFlags, renameat_with, unlinkat};
use rustix::io::Errno;

use super::error::LeftState;
use crate::dir::Dir;
use crate::meta::FileKind;
use crate::name::EntryName;

/// How a name changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// File and shadow change places.
    Exchange,
    /// The shadow becomes the file.
    Create,
    /// The file becomes the shadow.
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reverted {
    Done,
    /// It is not, for somebody has interfered.
    Not(LeftState),
}

/// What a name refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Nothing,
    New,
    /// Another file or what else there is.
    Other,
}

/// Brings `name` back to what it was, and removes `shadow`. `inode` is the new file's.
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
                    // Somebody was faster: what they put there goes back to where they put it.
                    self.rename(self.shadow, self.name, RenameFlags::EXCHANGE)?;
                    return Err(Errno::AGAIN);
                }
                self.drop_shadow(Reverted::Done)
            }
            // Not taken, or taken back already.
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
                // By way of the shadow's name, so that nobody else's file is removed.
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

    /// The shadow is the old file, or there is none.
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
