//! One file of a transaction: its shadow, and the renames between the two.

use rustix::fs::{AtFlags, RenameFlags, renameat_with, unlinkat};
use rustix::io::Errno;

use super::error::LeftState;
use super::revert::{Kind, Reverted, revert};
use super::{Held, Then, join};
use crate::error::{OpenError, OpenErrorKind, WriteError};
use crate::meta::Metadata;
use crate::name::EntryName;
use crate::note::Note;
use crate::path::SandboxPath;
use crate::resolve;
use crate::temporary_name::{name_of, random};
use crate::write::{Found, Target};

/// A prepared change. Dropping it changes nothing.
#[derive(Debug)]
pub(super) struct Step<'j> {
    target: Target,
    pub(super) kind: Kind,
    pub(super) shadow: EntryName,
    /// Inode of the new file; 0 if there is none.
    pub(super) inode: u64,
    note: Option<Note>,
    held: Option<Held<'j>>,
}

impl<'j> Step<'j> {
    pub(super) fn prepare(target: Target, then: Then, held: Option<Held<'j>>) -> Result<Self, WriteError> {
        let fault =
            |kind: OpenErrorKind, target: &Target| WriteError::from(OpenError::new(target.path(), kind));
        let prepared = match then {
            Then::Put { content, like } => target.prepare(&content, like),
            Then::Fill { mut fill, permissions } => target.prepare_from(fill.filling(), None, permissions),
            Then::Gone => {
                let noted = random().and_then(|digits| {
                    let name = name_of(&digits).ok_or(OpenErrorKind::Inexpressible)?;
                    Ok((name, target.note(&digits)?))
                });
                let (shadow, note) = noted.map_err(|kind| fault(kind, &target))?;
                return Ok(Self { target, kind: Kind::Remove, shadow, inode: 0, note, held });
            }
        };
        let made = prepared.and_then(|temporary| {
            let inode = temporary.metadata()?.identity.1;
            let (shadow, note) = temporary.keep();
            Ok((shadow, note, inode))
        });
        let (shadow, note, inode) = made.map_err(|kind| fault(kind, &target))?;
        let kind = if target.found() == Found::Absent { Kind::Create } else { Kind::Exchange };
        Ok(Self { target, kind, shadow, inode, note, held })
    }

    pub(super) const fn target(&self) -> &Target {
        &self.target
    }

    pub(super) const fn directory(&self) -> &SandboxPath {
        self.target.place()
    }

    pub(super) fn path(&self) -> SandboxPath {
        join(self.target.place(), self.target.name())
    }

    /// Takes the step. It may have been taken even if this fails: [`Self::revert`] finds out.
    pub(super) fn apply(&self) -> Result<(), WriteError> {
        let changed = || WriteError::Changed { path: self.target.path() };
        if self.kind != Kind::Remove && !self.is_new(&self.shadow) {
            return Err(WriteError::Interfered { path: self.target.path() });
        }
        let turn = self.target.turn();
        let turn = turn.map_err(|errno| WriteError::from(OpenError::new(self.target.path(), errno)))?;
        if !self.target.is_unchanged() {
            return Err(changed());
        }
        let (from, to) = (self.target.name().as_bytes(), self.shadow.as_bytes());
        let dir = self.target.dir();
        let renamed = match self.kind {
            Kind::Exchange => renameat_with(dir, to, dir, from, RenameFlags::EXCHANGE),
            Kind::Create => renameat_with(dir, to, dir, from, RenameFlags::NOREPLACE),
            Kind::Remove => renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE),
        };
        renamed.map_err(|errno| match errno {
            Errno::EXIST | Errno::NOENT => changed(),
            Errno::INVAL | Errno::NOSYS => OpenError::new(
                self.target.path(),
                OpenErrorKind::Io(std::io::Error::other("its file system cannot exchange two names")),
            )
            .into(),
            errno => OpenError::new(self.target.path(), errno).into(),
        })?;
        drop(turn);
        // Detects a change in the instant between the check and the rename: only now is the replaced file known.
        if self.kind != Kind::Create && !self.displaced_the_old() {
            return Err(changed());
        }
        if self.kind != Kind::Remove && !self.is_new(self.target.name()) {
            return Err(WriteError::Interfered { path: self.target.path() });
        }
        Ok(())
    }

    fn is_new(&self, name: &EntryName) -> bool {
        self.target.dir().stat(name).is_ok_and(|found| found.identity.1 == self.inode)
    }

    fn displaced_the_old(&self) -> bool {
        let Found::File(old) = self.target.found() else { return false };
        // A rename changes the time of the last metadata change.
        let content = |meta: Metadata| (meta.identity, meta.size, meta.modified);
        let same =
            self.target.dir().stat(&self.shadow).is_ok_and(|displaced| content(displaced) == content(old));
        same && self.held.as_ref().is_none_or(|Held(is)| {
            let displaced = resolve::open_regular(self.target.dir(), self.shadow.as_bytes());
            displaced.is_ok_and(|displaced| is(displaced).unwrap_or(false))
        })
    }

    /// Undoes the step, if it has been taken, and removes the shadow.
    ///
    /// Returns the state of the file if it was not restored, and true if nothing is left to do.
    pub(super) fn revert(&self) -> (Option<LeftState>, bool) {
        match revert(self.target.dir(), self.target.name(), &self.shadow, self.kind, self.inode) {
            Ok(reverted) => {
                self.remove_note();
                match reverted {
                    Reverted::Done => (None, true),
                    Reverted::Not(state) => (Some(state), true),
                }
            }
            Err(_) => (Some(LeftState::Unknown), false),
        }
    }

    /// Removes the shadow. Returns true if it is gone.
    pub(super) fn remove_shadow(&self) -> bool {
        let gone = self.kind == Kind::Create
            || matches!(
                unlinkat(self.target.dir(), self.shadow.as_bytes(), AtFlags::empty()),
                Ok(()) | Err(Errno::NOENT)
            );
        if gone {
            self.remove_note();
        }
        gone
    }

    fn remove_note(&self) {
        if let Some(note) = &self.note {
            note.remove();
        }
    }
}
