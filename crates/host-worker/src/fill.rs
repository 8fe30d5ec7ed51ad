//! Fills a workspace that no process uses yet with a part of a checkpoint, as `save.rs` made it.
//!
//! The marks of a layer come first. A listed name is removed, and a listed directory is emptied, through the overlay on which the
//! workspace is mounted: so the overlay makes its own marks. Then each saved name replaces the name that is there.
//!
//! An agent wrote the saved files, and the lists name its files. All code here works name by name on open directories and follows no
//! link, as the owner of the workspace. It can open what the agent has made unreadable (`setup`), and makes writable what it writes.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use jail::{Dir, EntryName, FileKind, Mount, OpenError, OpenErrorKind, Root};
use rustix::fs::{Mode, OFlags, fchmod, fstat, futimens, open, openat};
use rustix::io::Errno;
use rustix::process::geteuid;
use text::excerpt;
use thiserror::Error;

use crate::copying::{DIRECTORY, by_kernel, make_file, open_dir, open_file, times};
use crate::sys;

/// Most levels of directories, as in a saved tree.
pub(crate) const MAX_DEPTH: usize = 128;
/// Largest list of marks, bytes.
pub(crate) const MOST_MARKS: u64 = 256 << 20;
/// The mode that the owner needs to fill a directory.
pub(crate) const WRITABLE: u32 = 0o700;

/// The reason why a workspace was not filled, fit for a client.
#[derive(Debug, Error)]
pub(crate) enum FillFailure {
    #[error("the directory cannot be opened: {0}")]
    Start(#[from] io::Error),
    #[error("{0}")]
    Open(#[from] OpenError),
    #[error("{path} cannot be written: {error}")]
    Write { path: String, error: io::Error },
    #[error("the list of deleted names is damaged")]
    Marks,
    #[error("directories are nested deeper than {MAX_DEPTH} levels")]
    Deep,
}

/// Fills the workspace with the source.
pub(crate) fn fill() -> Result<(), FillFailure> {
    fill_in(Path::new("/source"), Path::new("/workspace"), sys::is_abandoned)
}

fn fill_in(from: &Path, into: &Path, is_abandoned: fn() -> bool) -> Result<(), FillFailure> {
    // The mounts' names make no difference: messages have relative paths.
    let target = Root::open(Mount::Project, into)?;
    let top = target.top()?;
    for mark in list(from, "marks")?.split(|byte| *byte == 0).filter(|mark| !mark.is_empty()) {
        match mark.split_first() {
            // Instead of a special file that was not copied, nothing is there.
            Some((b'w' | b's', path)) => remove(&top, path)?,
            Some((b'o', path)) => empty(&top, path)?,
            _ => return Err(FillFailure::Marks),
        }
    }
    // A list of directories alone, which only the layer of a root has.
    for path in list(from, "opaque")?.split(|byte| *byte == 0).filter(|path| !path.is_empty()) {
        empty(&top, path)?;
    }
    let saved = Root::open(Mount::Project, &from.join("files"))?;
    directory(&saved.top()?, &top, 0, is_abandoned)
}

/// Reads a list of the source. A missing one is empty.
pub(crate) fn list(from: &Path, name: &str) -> Result<Vec<u8>, FillFailure> {
    let top = open(from, DIRECTORY, Mode::empty()).map_err(io::Error::from)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&top, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        opened => File::from(opened.map_err(io::Error::from)?),
    };
    let mut listed = Vec::new();
    file.take(MOST_MARKS + 1).read_to_end(&mut listed)?;
    if listed.len() as u64 > MOST_MARKS {
        return Err(FillFailure::Marks);
    }
    Ok(listed)
}

/// Parses a listed path into its names.
pub(crate) fn names(path: &[u8]) -> Result<Vec<EntryName>, FillFailure> {
    let names = path.split(|byte| *byte == b'/').map(EntryName::new);
    names.collect::<Option<Vec<_>>>().filter(|names| names.len() <= MAX_DEPTH).ok_or(FillFailure::Marks)
}

/// Opens a directory beneath `top`. `None` if there is none at the path: then nothing of it has to be hidden.
fn beneath(top: &Dir, path: &[EntryName]) -> Result<Option<Dir>, FillFailure> {
    let mut at: Option<Dir> = None;
    for name in path {
        match open_dir(at.as_ref().unwrap_or(top), name) {
            Ok(inner) => at = Some(inner),
            Err(OpenError {
                kind: OpenErrorKind::NotFound | OpenErrorKind::NotADirectory | OpenErrorKind::Symlink,
                ..
            }) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(at)
}

/// Removes a listed name.
fn remove(top: &Dir, path: &[u8]) -> Result<(), FillFailure> {
    let names = names(path)?;
    let Some((last, above)) = names.split_last() else { return Err(FillFailure::Marks) };
    if above.is_empty() {
        return discard(top, last);
    }
    match beneath(top, above)? {
        Some(directory) => {
            // It gets its mode when the saved directory is put into it.
            open_up(&directory)?;
            discard(&directory, last)
        }
        None => Ok(()),
    }
}

/// Makes a directory of this owner writable.
fn open_up(directory: &Dir) -> Result<(), FillFailure> {
    let stat = fstat(directory).map_err(io::Error::from)?;
    if stat.st_mode & WRITABLE != WRITABLE && stat.st_uid == geteuid().as_raw() {
        directory.set_mode(stat.st_mode | WRITABLE)?;
    }
    Ok(())
}

/// Removes a name, and all beneath it if it is a directory, also from directories that their owner had made unreadable or read-only.
pub(crate) fn discard(directory: &Dir, name: &EntryName) -> Result<(), FillFailure> {
    unseal(directory, name, 0)?;
    Ok(directory.remove(name)?)
}

/// Makes the directories at and beneath a name writable.
fn unseal(directory: &Dir, name: &EntryName, depth: usize) -> Result<(), FillFailure> {
    if !is_directory(directory, name) {
        return Ok(());
    }
    if depth > MAX_DEPTH {
        return Err(FillFailure::Deep);
    }
    let inner = open_dir(directory, name)?;
    open_up(&inner)?;
    for entry in inner.entries()? {
        unseal(&inner, &entry?.name, depth + 1)?;
    }
    Ok(())
}

/// Empties a listed directory. The path of the topmost one is empty.
fn empty(top: &Dir, path: &[u8]) -> Result<(), FillFailure> {
    let inner = if path.is_empty() { None } else { Some(beneath(top, &names(path)?)?) };
    let directory = match &inner {
        None => top,
        Some(Some(directory)) => directory,
        Some(None) => return Ok(()),
    };
    open_up(directory)?;
    let found: Vec<EntryName> =
        directory.entries()?.map(|entry| entry.map(|entry| entry.name)).collect::<Result<_, _>>()?;
    for name in found {
        discard(directory, &name)?;
    }
    Ok(())
}

/// Puts all of a saved directory into the one that has its name.
fn directory(saved: &Dir, target: &Dir, depth: usize, is_abandoned: fn() -> bool) -> Result<(), FillFailure> {
    if depth > MAX_DEPTH {
        return Err(FillFailure::Deep);
    }
    let stat = fstat(saved).map_err(io::Error::from)?;
    // The daemon keeps the directory of the run's log, for example.
    let is_own = fstat(target).map_err(io::Error::from)?.st_uid == geteuid().as_raw();
    if is_own {
        target.set_mode(stat.st_mode | WRITABLE)?;
    }
    let names: Vec<EntryName> =
        saved.entries()?.map(|entry| entry.map(|entry| entry.name)).collect::<Result<_, _>>()?;
    for name in names {
        if is_abandoned() {
            // The next daemon removes the workspace.
            sys::exit_now(1);
        }
        let kind = saved.metadata(&name)?.kind;
        if is_there(saved, target, &name, kind)? {
            continue;
        }
        // An overlay renames no directory from beneath, so nothing is exchanged for one.
        if !(kind == FileKind::Directory && is_directory(target, &name)) {
            discard(target, &name)?;
        }
        match kind {
            FileKind::Directory => {
                target.put_dir(&name, WRITABLE)?;
                directory(&open_dir(saved, &name)?, &open_dir(target, &name)?, depth + 1, is_abandoned)?;
            }
            FileKind::Symlink => target.put_link(&name, &saved.read_link(&name)?)?,
            FileKind::File => file(saved, target, &name)?,
            // A saved tree has none, so somebody has put it there.
            FileKind::Fifo | FileKind::Socket | FileKind::Device | FileKind::Other => {}
        }
    }
    if !is_own {
        return Ok(());
    }
    target.set_mode(stat.st_mode)?;
    let nanos = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    futimens(target, &times((stat.st_mtime, nanos))).map_err(|errno| failed("a directory", errno.into()))
}

/// Returns true if the saved file or link is in the directory already.
///
/// A file of a root on which the container has another one mounted must not be replaced: the kernel would remove that mount.
pub(crate) fn is_there(
    saved: &Dir,
    target: &Dir,
    name: &EntryName,
    kind: FileKind,
) -> Result<bool, FillFailure> {
    let Ok(old) = target.metadata(name) else { return Ok(false) };
    match kind {
        FileKind::Symlink if old.kind == kind => Ok(target.read_link(name)? == saved.read_link(name)?),
        FileKind::File if old.kind == kind => {
            let new = open_file(saved, name)?;
            let is_alike = (new.meta.size, new.meta.mode & 0o777) == (old.size, old.mode & 0o777);
            // A file that the owner cannot read is replaced.
            let Ok(old) = open_file(target, name) else { return Ok(false) };
            Ok(is_alike && is_same(new.file, old.file)?)
        }
        _ => Ok(false),
    }
}

/// Returns true if two files of one length have the same content.
fn is_same(one: File, other: File) -> io::Result<bool> {
    let (mut one, mut other) = (BufReader::new(one), BufReader::new(other));
    loop {
        let (ones, others) = (one.fill_buf()?, other.fill_buf()?);
        let common = ones.len().min(others.len());
        if ones[..common] != others[..common] {
            return Ok(false);
        }
        if common == 0 {
            return Ok(ones.is_empty() && others.is_empty());
        }
        one.consume(common);
        other.consume(common);
    }
}

fn is_directory(target: &Dir, name: &EntryName) -> bool {
    target.metadata(name).is_ok_and(|meta| meta.kind == FileKind::Directory)
}

pub(crate) fn file(saved: &Dir, target: &Dir, name: &EntryName) -> Result<(), FillFailure> {
    let mut opened = open_file(saved, name)?;
    let mut write = || -> io::Result<()> {
        let mut copy = make_file(target, name)?;
        if !by_kernel(&opened.file, &copy, u64::MAX)? {
            opened.file.seek(SeekFrom::Start(0))?;
            io::copy(&mut opened.file, &mut copy)?;
        }
        fchmod(&copy, Mode::from_raw_mode(opened.meta.mode & 0o777))?;
        Ok(futimens(&copy, &times(opened.meta.modified))?)
    };
    write().map_err(|error| failed(&name.shown(), error))
}

fn failed(path: &str, error: io::Error) -> FillFailure {
    FillFailure::Write { path: excerpt(path), error }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_workspace_gets_the_saved_names_and_loses_the_listed_ones() {
        let place = tempfile::tempdir().unwrap();
        let (from, into) = (place.path().join("from"), place.path().join("into"));
        for directory in
            [from.join("files/d"), from.join("files/was-file"), into.join("d"), into.join("gone/deep")]
        {
            fs::create_dir_all(directory).unwrap();
        }
        fs::create_dir(place.path().join("outside")).unwrap();
        fs::write(place.path().join("outside/kept"), "k").unwrap();
        symlink("../outside", into.join("link")).unwrap();
        for (name, content) in [("d/new", "n"), ("d/changed", "after"), ("run.sh", "#!")] {
            fs::write(from.join("files").join(name), content).unwrap();
        }
        fs::set_permissions(from.join("files/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("/nowhere", from.join("files/to")).unwrap();
        for (name, content) in
            [("d/changed", "before"), ("d/hidden", "h"), ("was-file", "f"), ("stays", "s"), ("to", "t")]
        {
            fs::write(into.join(name), content).unwrap();
        }
        fs::write(from.join("marks"), "od\0wgone\0wlink/kept\0wnone/x\0").unwrap();
        fill_in(&from, &into, || false).unwrap();
        let text = |name: &str| fs::read_to_string(into.join(name)).unwrap();
        assert_eq!(
            (text("d/new"), text("d/changed"), text("stays")),
            ("n".into(), "after".into(), "s".into())
        );
        assert!(!into.join("gone").exists() && !into.join("d/hidden").exists());
        assert!(into.join("was-file").is_dir());
        assert_eq!(fs::read_link(into.join("to")).unwrap(), Path::new("/nowhere"));
        assert!(place.path().join("outside/kept").exists(), "no link is followed");
        let meta = fs::metadata(into.join("run.sh")).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o755);
        assert_eq!(meta.mtime_nsec(), fs::metadata(from.join("files/run.sh")).unwrap().mtime_nsec());
    }

    #[test]
    fn a_topmost_directory_that_hides_the_one_beneath_is_emptied_first() {
        let place = tempfile::tempdir().unwrap();
        let (from, into) = (place.path().join("from"), place.path().join("into"));
        fs::create_dir_all(from.join("files")).unwrap();
        fs::create_dir_all(into.join("d")).unwrap();
        fs::write(from.join("files/own"), "o").unwrap();
        fs::write(into.join("hidden"), "h").unwrap();
        fs::write(from.join("marks"), "o\0").unwrap();
        fill_in(&from, &into, || false).unwrap();
        let names: Vec<_> = fs::read_dir(&into).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["own"]);
    }

    #[test]
    fn lists_that_name_no_path_are_refused() {
        for marks in ["x\0", "w\0", "w../a\0", "wa//b\0", "w/etc\0", "w.\0"] {
            let place = tempfile::tempdir().unwrap();
            let (from, into) = (place.path().join("from"), place.path().join("into"));
            fs::create_dir_all(from.join("files")).unwrap();
            fs::create_dir(&into).unwrap();
            fs::write(from.join("marks"), marks).unwrap();
            assert!(matches!(fill_in(&from, &into, || false), Err(FillFailure::Marks)), "{marks:?}");
        }
    }
}
