//! Walks a layer beside the directory beneath it, and finds the change of each name.

use jail::{Dir, EntryName, FileKind, Metadata, OpenError, OpenErrorKind};

use super::MAX_DEPTH;
use super::judge::{self, Judgement, Kind};
use super::names::{found, names};
use host_launch::args::Since;

/// A name that differs.
#[derive(Debug)]
pub(super) struct Change<'a> {
    /// Path from the top; names as the file system has them.
    pub(super) path: &'a [EntryName],
    pub(super) kind: Kind,
    /// The file in the layer; for a deleted name, the file beneath.
    pub(super) meta: Metadata,
    /// The file beneath.
    pub(super) old: Option<Metadata>,
    /// The directory in the layer. A name that an opaque directory hides has no entry there.
    pub(super) changes: &'a Dir,
    /// The directory beneath, unless it is new.
    pub(super) beneath: Option<&'a Dir>,
    pub(super) judgement: Judgement,
}

impl Change<'_> {
    pub(super) fn name(&self) -> Option<&EntryName> {
        self.path.last()
    }

    /// Returns the path as the API shows it.
    pub(super) fn shown(&self) -> String {
        self.path.iter().map(EntryName::shown).collect::<Vec<_>>().join("/")
    }
}

pub(super) trait Visitor {
    /// Visits a change. Returns true if the walk should enter a new directory.
    fn change(&mut self, change: &Change<'_>) -> Result<bool, OpenError>;

    /// Announces the walk of a directory that both sides have.
    fn enter(&mut self, _beneath: &Dir) -> Result<(), OpenError> {
        Ok(())
    }

    /// Announces the end of that walk.
    fn leave(&mut self, _beneath: &Dir) -> Result<(), OpenError> {
        Ok(())
    }
}

/// Visits every change, in the order of the paths' bytes.
pub(super) fn walk(
    changes: &Dir,
    beneath: &Dir,
    since: Since,
    visitor: &mut impl Visitor,
) -> Result<(), OpenError> {
    Walk { since, path: Vec::new(), visitor }.directory(changes, Some(beneath))
}

struct Walk<'v, V> {
    since: Since,
    path: Vec<EntryName>,
    visitor: &'v mut V,
}

impl<V: Visitor> Walk<'_, V> {
    fn directory(&mut self, changes: &Dir, beneath: Option<&Dir>) -> Result<(), OpenError> {
        if let Some(beneath) = beneath {
            self.visitor.enter(beneath)?;
        }
        let mut names = names(changes)?;
        if let Some(beneath) = beneath
            && judge::is_opaque(changes)
        {
            names.extend(self::names(beneath)?);
            names.sort_unstable();
            names.dedup();
        }
        for name in names {
            self.path.push(name);
            self.name(changes, beneath)?;
            self.path.pop();
        }
        if let Some(beneath) = beneath {
            self.visitor.leave(beneath)?;
        }
        Ok(())
    }

    fn name(&mut self, changes: &Dir, beneath: Option<&Dir>) -> Result<(), OpenError> {
        let Some(name) = self.path.last().cloned() else { return Ok(()) };
        let old = beneath.map(|beneath| found(beneath, &name)).transpose()?.flatten();
        let new = found(changes, &name)?.filter(|meta| !judge::is_whiteout(changes, &name, meta));
        let (kind, meta) = match (new, old) {
            (None, None) => return Ok(()),
            (None, Some(old)) => (Kind::Deleted, old),
            (Some(new), None) => (Kind::Added, new),
            (Some(new), Some(old)) => {
                if judge::is_same(changes, beneath, &name, &new, &old) {
                    return self.below(changes, beneath, &name, &new, Some(&old));
                }
                (Kind::Modified, new)
            }
        };
        let judged =
            judge::Judged { path: &self.path, kind, meta: &meta, old: old.as_ref(), changes, beneath };
        let judgement = judge::judge(&judged, self.since);
        let change = Change { path: &self.path, kind, meta, old, changes, beneath, judgement };
        let descend = self.visitor.change(&change)?;
        if descend && kind != Kind::Deleted {
            return self.below(changes, beneath, &name, &meta, old.as_ref());
        }
        Ok(())
    }

    /// Walks the contents of `name`, if it is a directory.
    fn below(
        &mut self,
        changes: &Dir,
        beneath: Option<&Dir>,
        name: &EntryName,
        new: &Metadata,
        old: Option<&Metadata>,
    ) -> Result<(), OpenError> {
        if new.kind != FileKind::Directory || self.path.len() >= MAX_DEPTH {
            return Ok(());
        }
        let inner = match changes.open_dir(name) {
            Ok(inner) => inner,
            // Already reported for the directory itself.
            Err(OpenError { kind: OpenErrorKind::PermissionDenied, .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        // The directory may have been created, or have replaced another file, just now.
        let is_there = beneath.is_some_and(|beneath| {
            old.is_some_and(|old| old.kind == FileKind::Directory)
                || beneath.metadata(name).is_ok_and(|meta| meta.kind == FileKind::Directory)
        });
        match beneath.filter(|_| is_there) {
            Some(beneath) => self.directory(&inner, Some(&beneath.open_dir(name)?)),
            None => self.directory(&inner, None),
        }
    }
}
