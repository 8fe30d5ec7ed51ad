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
//! If the checkpoint is the very tree beneath, its own names are not read at all: only those of the present state are put back.
//!
//! Nothing here depends on what was done before, so an interrupted restore is completed by another one. Files are compared, and what is
//! there already is not written. An agent wrote all names. The code works name by name on open directories and follows no link, as the
//! owner of the workspace. Directories of other owners, such as that of the run's log, are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use jail::{Dir, EntryName, FileKind, Metadata, Mount, OpenError, OpenErrorKind, Root};
use rustix::fs::{Stat, fstat, futimens};
use rustix::process::geteuid;

use crate::copying::{open_dir, times};
use crate::fill::{FillFailure, MAX_DEPTH, WRITABLE, discard, file, is_there, list, names};
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
    let is_beneath = beneath.as_ref().map(|beneath| is_same(&saved, beneath)).transpose()?;
    // The workspace goes back to the very tree beneath it, of which nothing has to be compared.
    let saved = Some(saved).filter(|_| is_beneath != Some(true));
    let before = layer.map(|(_, before)| top(&before.join("files"))).transpose()?;
    let marks_before = layer.map(|(_, before)| Marks::read(before)).transpose()?;
    let mut restore = Restore {
        saved: Marks::read(from)?,
        before: marks_before.unwrap_or_default(),
        path: Vec::new(),
        is_abandoned,
    };
    let at = At { saved: saved.as_ref(), beneath: beneath.as_ref(), before: before.as_ref(), is_all: false };
    restore.directory(&top(into)?, at, 0)
}

/// The marks of a saved layer, by the path of their directory.
#[derive(Default)]
struct Marks {
    /// Deleted names.
    gone: BTreeMap<Vec<u8>, BTreeSet<EntryName>>,
    /// FIFOs, sockets and devices that were not copied.
    special: BTreeMap<Vec<u8>, BTreeSet<EntryName>>,
    /// Directories that hide the ones beneath.
    opaque: BTreeSet<Vec<u8>>,
}

impl Marks {
    fn read(from: &Path) -> Result<Self, FillFailure> {
        let mut marks = Self::default();
        for mark in list(from, "marks")?.split(|byte| *byte == 0).filter(|mark| !mark.is_empty()) {
            match mark.split_first() {
                Some((b'w', path)) => add(&mut marks.gone, path)?,
                Some((b's', path)) => add(&mut marks.special, path)?,
                // The topmost directory hides the one beneath: its path is empty.
                Some((b'o', [])) => {
                    marks.opaque.insert(Vec::new());
                }
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
        [&self.gone, &self.special]
            .iter()
            .any(|listed| listed.get(path).is_some_and(|names| names.contains(name)))
    }
}

/// Adds a listed path to the names of its directory.
fn add(listed: &mut BTreeMap<Vec<u8>, BTreeSet<EntryName>>, path: &[u8]) -> Result<(), FillFailure> {
    let last = names(path)?.pop().ok_or(FillFailure::Marks)?;
    let above = path.len() - last.as_bytes().len();
    listed.entry(path[..above.saturating_sub(1)].to_vec()).or_default().insert(last);
    Ok(())
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
            for listed in [&marks.gone, &marks.special] {
                names.extend(listed.get(&self.path).into_iter().flatten().cloned());
            }
        }
        Ok(names)
    }

    fn name(&mut self, target: &Dir, at: At<'_>, name: &EntryName, depth: usize) -> Result<(), FillFailure> {
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
            // Nothing is to be there. A special file in a saved tree was put there by somebody else.
            _ => {
                if is_of_others(target, name) {
                    Ok(())
                } else {
                    discard(target, name)
                }
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
        let is_directory = kind(Some(target), name)? == Some(FileKind::Directory);
        // The directory is not the one beneath with changes, but a new one, or there is none.
        let is_new = !is_directory
            || self.before.has_gone(&self.path, name)
            || was.is_some_and(|was| was != FileKind::Directory);
        if !is_directory {
            discard(target, name)?;
            target.put_dir(name, WRITABLE)?;
        }
        let open = |directory: Option<&Dir>| directory.map(|directory| open_dir(directory, name)).transpose();
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
        let done = self.directory(&open_dir(target, name)?, inner, depth + 1);
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
    discard(target, name)?;
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

/// Returns true if both are the same directory, perhaps seen through different mounts.
fn is_same(one: &Dir, other: &Dir) -> io::Result<bool> {
    let place = |stat: Stat| (stat.st_dev, stat.st_ino);
    Ok(place(stat(one)?) == place(stat(other)?))
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
    let is_other = |meta: Metadata| meta.kind == FileKind::Directory && meta.uid != geteuid().as_raw();
    target.metadata(name).is_ok_and(is_other)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    use super::*;

    /// Makes files of a tree. A name that ends with `/` is a directory.
    fn tree(at: PathBuf, names: &[(&str, &str)]) -> PathBuf {
        fs::create_dir_all(&at).unwrap();
        for (name, content) in names {
            let path = at.join(name);
            if name.ends_with('/') {
                fs::create_dir_all(path).unwrap();
            } else {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, content).unwrap();
            }
        }
        at
    }

    /// Returns all names of a tree with their contents, by name.
    fn shown(at: &Path) -> Vec<String> {
        let mut found = Vec::new();
        let mut left = vec![at.to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(at).unwrap().display().to_string();
                if path.is_symlink() {
                    found.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
                } else if path.is_dir() {
                    found.push(format!("{name}/"));
                    left.push(path);
                } else {
                    found.push(format!("{name}={}", fs::read_to_string(&path).unwrap()));
                }
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn a_plain_workspace_is_what_was_saved_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let saved =
            [("a", "one"), ("d/x", "x"), ("was-directory", "f"), ("was-file/in", "i"), ("empty/", "")];
        tree(at("from/files"), &saved);
        symlink("a", at("from/files/link")).unwrap();
        tree(at("outside"), &[("kept", "k")]);
        let now =
            [("a", "two"), ("d/new", "n"), ("was-directory/deep/er", "y"), ("was-file", "z"), ("new/x", "")];
        tree(at("into"), &now);
        symlink("../outside", at("into/out")).unwrap();
        symlink("../outside/kept", at("into/link")).unwrap();
        fs::set_permissions(at("into/d"), Permissions::from_mode(0o500)).unwrap();
        let expected = shown(&at("from/files"));
        for _ in 0..2 {
            restore_in(&at("from"), &at("into"), None, || false).unwrap();
            assert_eq!(shown(&at("into")), expected);
        }
        assert_eq!(shown(&at("outside")), ["kept=k"], "no link is followed");
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(at("into/d")), mode(at("from/files/d")));
    }

    #[test]
    fn names_of_an_overlay_that_the_checkpoint_does_not_have_are_those_beneath() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let below = [
            ("same", "same"),
            ("changed-before", "below"),
            ("changed-since", "below"),
            ("gone-before", "below"),
            ("gone-since", "below"),
            ("d/gone-since", "below"),
            ("d/same", "same"),
            ("hidden/x", "below"),
            ("replaced-since/x", "below"),
            ("replaced-since/deep/y", "below"),
        ];
        tree(at("beneath"), &below);
        // At the checkpoint.
        tree(at("from/files"), &[("changed-before", "saved"), ("d/new", "saved"), ("hidden/own", "saved")]);
        fs::write(at("from/marks"), "wgone-before\0ohidden\0").unwrap();
        // Now.
        let now =
            [("changed-since", "now"), ("gone-before", "again"), ("d/since", "now"), ("replaced-since", "f")];
        tree(at("before/files"), &now);
        fs::write(at("before/marks"), "wgone-since\0wd/gone-since\0whidden\0").unwrap();
        tree(at("into"), &[("same", "not compared"), ("changed-before", "below"), ("d/same", "same")]);
        tree(at("into"), &now);
        let expected = [
            "changed-before=saved",
            "changed-since=below",
            "d/",
            "d/gone-since=below",
            "d/new=saved",
            "d/same=same",
            "gone-since=below",
            "hidden/",
            "hidden/own=saved",
            "replaced-since/",
            "replaced-since/deep/",
            "replaced-since/deep/y=below",
            "replaced-since/x=below",
            // No list has this name, so it cannot differ, and nobody reads it.
            "same=not compared",
        ];
        for _ in 0..2 {
            let layer = (&*at("beneath"), &*at("before"));
            restore_in(&at("from"), &at("into"), Some(layer), || false).unwrap();
            assert_eq!(shown(&at("into")), expected);
        }
    }

    #[test]
    fn the_tree_beneath_an_overlay_is_restored_without_reading_all_of_it() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let saved = [("unread", "saved"), ("changed", "saved"), ("d/x", "saved"), ("d/gone", "saved")];
        tree(at("from/files"), &saved);
        tree(at("before/files"), &[("changed", "now"), ("new", "now"), ("d/new", "now")]);
        fs::write(at("before/marks"), "wd/gone\0").unwrap();
        let now =
            [("unread", "other"), ("changed", "now"), ("new", "now"), ("d/new", "now"), ("d/x", "other")];
        tree(at("into"), &now);
        restore_in(&at("from"), &at("into"), Some((&at("from/files"), &at("before"))), || false).unwrap();
        // The layer does not have the others, so they cannot differ.
        let expected = ["changed=saved", "d/", "d/gone=saved", "d/x=other", "unread=other"];
        assert_eq!(shown(&at("into")), expected);
        // The same tree elsewhere is compared.
        tree(at("beneath"), &saved);
        restore_in(&at("from"), &at("into"), Some((&at("beneath"), &at("before"))), || false).unwrap();
        assert_eq!(shown(&at("into")), shown(&at("from/files")));
    }

    #[test]
    fn lists_that_name_no_path_are_refused() {
        for marks in ["x\0", "w\0", "w../a\0", "oa//b\0", "w/etc\0", "w.\0"] {
            let place = tempfile::tempdir().unwrap();
            let (from, into) = (place.path().join("from"), place.path().join("into"));
            fs::create_dir_all(from.join("files")).unwrap();
            fs::create_dir(&into).unwrap();
            fs::write(from.join("marks"), marks).unwrap();
            let refused = restore_in(&from, &into, None, || false);
            assert!(matches!(refused, Err(FillFailure::Marks)), "{marks:?}");
        }
    }
}
