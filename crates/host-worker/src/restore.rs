//! Makes a workspace that no process uses what it was when a part of a checkpoint was saved of it.
//!
//! A plain workspace gets the saved names, and loses all others. An overlay needs more: a name that the checkpoint does not have is
//! that of the directory beneath. Two lists say which names can differ from it: the checkpoint, and one of the present state. Only
//! these are compared, so an overlay on a large directory is restored as quickly as its changes are read.
//!
//! ```text
//! in the checkpoint?        ──yes──► as saved
//! deleted, or hidden in it? ──yes──► removed
//! there beneath?            ──yes──► as beneath
//!                           ──no───► removed
//! ```
//!
//! Nothing here depends on what was done before, so an interrupted restore is completed by another one. Files are compared, and what is
//! there already is not written. An agent wrote all names. The code works name by name on open directories and follows no link, as the
//! owner of the workspace. Directories of other owners, such as that of the run's log, are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use jail::{Dir, EntryName, FileKind, Mount, OpenError, OpenErrorKind, Root};
use rustix::fs::{Stat, fstat, futimens};
use rustix::process::geteuid;

use crate::copying::times;
use crate::fill::{FillFailure, MAX_DEPTH, WRITABLE, file, is_there, list, names};
use crate::sys;

/// The permission bits that a saved tree has.
const MODE: u32 = 0o777;

/// Makes the workspace what the source says.
pub(crate) fn restore(is_layer: bool) -> Result<(), FillFailure> {
    let layer = is_layer.then(|| (Path::new("/beneath"), Path::new("/before")));
    restore_in(Path::new("/source"), Path::new("/workspace"), layer, sys::is_abandoned)
}

fn restore_in(
    from: &Path,
    into: &Path,
    layer: Option<(&Path, &Path)>,
    is_abandoned: fn() -> bool,
) -> Result<(), FillFailure> {
    // The mounts' names make no difference: messages have relative paths.
    let top = |path: &Path| -> Result<Dir, FillFailure> { Ok(Root::open(Mount::Project, path)?.top()?) };
    let saved = top(&from.join("files"))?;
    let beneath = layer.map(|(beneath, _)| top(beneath)).transpose()?;
    let before = layer.map(|(_, before)| top(&before.join("files"))).transpose()?;
    let marks_before = layer.map(|(_, before)| Marks::read(before)).transpose()?;
    let mut restore = Restore {
        saved: Marks::read(from)?,
        before: marks_before.unwrap_or_default(),
        path: Vec::new(),
        is_abandoned,
    };
    let at = At {
        saved: Some(&saved),
        beneath: beneath.as_ref(),
        before: before.as_ref(),
        is_all: false,
    };
    restore.directory(&top(into)?, at, 0)
}

/// The marks of a saved layer, by the path of their directory.
#[derive(Default)]
struct Marks {
    /// Deleted names.
    gone: BTreeMap<Vec<u8>, BTreeSet<EntryName>>,
    /// Directories that hide the ones beneath.
    opaque: BTreeSet<Vec<u8>>,
}

impl Marks {
    fn read(from: &Path) -> Result<Self, FillFailure> {
        let mut marks = Self::default();
        for mark in list(from, "marks")?.split(|byte| *byte == 0).filter(|mark| !mark.is_empty()) {
            match mark.split_first() {
                Some((b'w', path)) => {
                    let last = names(path)?.pop().ok_or(FillFailure::Marks)?;
                    let above = path.len() - last.as_bytes().len();
                    marks.gone.entry(path[..above.saturating_sub(1)].to_vec()).or_default().insert(last);
                }
                // The topmost directory hides the one beneath: its path is empty.
                Some((b'o', [])) => drop(marks.opaque.insert(Vec::new())),
                Some((b'o', path)) => {
                    names(path)?;
                    marks.opaque.insert(path.to_vec());
                }
                _ => return Err(FillFailure::Marks),
            }
        }
        Ok(marks)
    }

    fn has_gone(&self, path: &[u8], name: &EntryName) -> bool {
        self.gone.get(path).is_some_and(|gone| gone.contains(name))
    }
}

/// One directory, as each of the trees has it.
#[derive(Clone, Copy)]
struct At<'a> {
    saved: Option<&'a Dir>,
    beneath: Option<&'a Dir>,
    before: Option<&'a Dir>,
    /// Any name of it can differ from what is beneath.
    is_all: bool,
}

struct Restore {
    saved: Marks,
    before: Marks,
    /// Relative path of the present directory.
    path: Vec<u8>,
    is_abandoned: fn() -> bool,
}

impl Restore {
    fn directory(&mut self, target: &Dir, at: At<'_>, depth: usize) -> Result<(), FillFailure> {
        if depth > MAX_DEPTH {
            return Err(FillFailure::Deep);
        }
        let has = stat(target)?;
        if has.st_uid != geteuid().as_raw() {
            return Ok(());
        }
        if has.st_mode & WRITABLE != WRITABLE {
            target.set_mode(has.st_mode | WRITABLE)?;
        }
        let is_hiding = self.saved.opaque.contains(&self.path);
        let is_all =
            at.is_all || at.beneath.is_none() || is_hiding || self.before.opaque.contains(&self.path);
        let at = At { beneath: at.beneath.filter(|_| !is_hiding), is_all, ..at };
        for name in self.names(target, at)? {
            if (self.is_abandoned)() {
                // The next daemon does it again.
                sys::exit_now(1);
            }
            self.name(target, at, &name, depth)?;
        }
        match at.saved.or(at.beneath) {
            Some(model) => look_like(target, &stat(model)?),
            None => Ok(()),
        }
    }

    /// Returns the names of a directory that can differ from what they are to be.
    fn names(&self, target: &Dir, at: At<'_>) -> Result<BTreeSet<EntryName>, FillFailure> {
        let mut names = BTreeSet::new();
        let of_all = [at.beneath, Some(target)].into_iter().flatten().filter(|_| at.is_all);
        for directory in [at.saved, at.before].into_iter().flatten().chain(of_all) {
            for entry in directory.entries()? {
                names.insert(entry?.name);
            }
        }
        for marks in [&self.saved, &self.before] {
            names.extend(marks.gone.get(&self.path).into_iter().flatten().cloned());
        }
        Ok(names)
    }

    fn name(
        &mut self,
        target: &Dir,
        at: At<'_>,
        name: &EntryName,
        depth: usize,
    ) -> Result<(), FillFailure> {
        let lower = at.beneath.filter(|_| !self.saved.has_gone(&self.path, name));
        match (kind(at.saved, name)?, kind(lower, name)?) {
            (Some(FileKind::Directory), below) => {
                let lower = lower.filter(|_| below == Some(FileKind::Directory));
                self.within(target, At { beneath: lower, ..at }, name, depth)
            }
            (None, Some(FileKind::Directory)) => {
                self.within(target, At { saved: None, beneath: lower, ..at }, name, depth)
            }
            (Some(kind @ (FileKind::File | FileKind::Symlink)), _) => put(at.saved, target, name, kind),
            (None, Some(kind @ (FileKind::File | FileKind::Symlink))) => put(lower, target, name, kind),
            // A special file of the directory beneath cannot be made again.
            (None, Some(_)) => Ok(()),
            // A saved tree has no special file, so somebody has put it there.
            (Some(_) | None, _) => {
                if is_of_others(target, name) { Ok(()) } else { Ok(target.remove(name)?) }
            }
        }
    }

    /// Restores the directory `name` of the one that `at` describes. `at` has the trees that have a directory of this name.
    fn within(
        &mut self,
        target: &Dir,
        at: At<'_>,
        name: &EntryName,
        depth: usize,
    ) -> Result<(), FillFailure> {
        let was = kind(at.before, name)?;
        let is_there = kind(Some(target), name)? == Some(FileKind::Directory);
        // The directory is not the one beneath with changes, but a new one, or there is none.
        let is_new = !is_there
            || self.before.has_gone(&self.path, name)
            || was.is_some_and(|was| was != FileKind::Directory);
        if !is_there {
            target.remove(name)?;
            target.put_dir(name, WRITABLE)?;
        }
        let open = |directory: Option<&Dir>| directory.map(|directory| directory.open_dir(name)).transpose();
        let saved = open(at.saved)?;
        let beneath = open(at.beneath)?;
        let before = open(at.before.filter(|_| was == Some(FileKind::Directory)))?;
        let inner = At {
            saved: saved.as_ref(),
            beneath: beneath.as_ref(),
            before: before.as_ref(),
            is_all: at.is_all || is_new,
        };
        let above = self.path.len();
        if above > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.as_bytes());
        let done = self.directory(&target.open_dir(name)?, inner, depth + 1);
        self.path.truncate(above);
        done
    }
}

/// Puts a file or a link into the directory, unless it is there.
fn put(from: Option<&Dir>, target: &Dir, name: &EntryName, kind: FileKind) -> Result<(), FillFailure> {
    let Some(from) = from else { return Ok(()) };
    if is_there(from, target, name, kind)? {
        return Ok(());
    }
    target.remove(name)?;
    match kind {
        FileKind::Symlink => Ok(target.put_link(name, &from.read_link(name)?)?),
        _ => file(from, target, name),
    }
}

/// Gives a directory the mode and the time of another one.
fn look_like(target: &Dir, model: &Stat) -> Result<(), FillFailure> {
    let has = stat(target)?;
    if has.st_mode & MODE != model.st_mode & MODE {
        target.set_mode(model.st_mode & MODE)?;
    }
    if (has.st_mtime, has.st_mtime_nsec) != (model.st_mtime, model.st_mtime_nsec) {
        let nanos = u32::try_from(model.st_mtime_nsec).unwrap_or(0);
        futimens(target, &times((model.st_mtime, nanos))).map_err(io::Error::from)?;
    }
    Ok(())
}

fn stat(directory: &Dir) -> io::Result<Stat> {
    Ok(fstat(directory)?)
}

/// Returns the kind of a name. `None` if there is no directory, or no such name in it.
fn kind(directory: Option<&Dir>, name: &EntryName) -> Result<Option<FileKind>, OpenError> {
    let Some(directory) = directory else { return Ok(None) };
    match directory.metadata(name) {
        Ok(meta) => Ok(Some(meta.kind)),
        Err(OpenError { kind: OpenErrorKind::NotFound, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns true if the name is a directory of another owner.
fn is_of_others(target: &Dir, name: &EntryName) -> bool {
    let inner = target.open_dir(name).ok().and_then(|inner| fstat(&inner).ok());
    inner.is_some_and(|stat| stat.st_uid != geteuid().as_raw())
}

#[cfg(test)]
mod tests;
