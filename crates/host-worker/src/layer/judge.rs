//! Judges if a name has changed, and lists the reasons against applying the change.

use std::fs::File;
use std::io::Read as _;

use jail::{Dir, EntryName, FileKind, Metadata};
use rustix::fs::{AtFlags, Mode, OFlags, fgetxattr, openat, statat};

use super::MAX_DEPTH;
use super::names::names;
use host_launch::args::Since;

/// The mode bits that are applied: never set-id bits or the sticky bit.
const MODE: u32 = 0o777;
const CHUNK: usize = 64 * 1024;

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Added,
    Modified,
    Deleted,
}

/// The reasons against a change.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    /// The change is applied only when forced.
    pub(super) objection: Option<&'static str>,
    /// The change cannot be applied.
    pub(super) obstacle: Option<&'static str>,
}

pub(super) struct Judged<'a> {
    pub(super) path: &'a [EntryName],
    pub(super) kind: Kind,
    pub(super) meta: &'a Metadata,
    pub(super) old: Option<&'a Metadata>,
    pub(super) changes: &'a Dir,
    pub(super) beneath: Option<&'a Dir>,
}

/// Returns true if the overlay has marked the name as deleted.
pub(crate) fn is_whiteout(changes: &Dir, name: &EntryName, meta: &Metadata) -> bool {
    meta.kind == FileKind::Device
        && statat(changes, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_rdev == 0)
}

/// Returns true if the directory hides all of the directory beneath.
pub(crate) fn is_opaque(directory: &Dir) -> bool {
    fgetxattr(directory, "user.overlay.opaque", &mut [0_u8; 2][..]).is_ok_and(|length| length > 0)
}

/// Returns true if the overlay copied the file up, so that the agent did not create it.
fn was_copied_up(file: &File) -> bool {
    fgetxattr(file, "user.overlay.origin", &mut [0_u8; 256][..]).is_ok()
}

/// Returns true if a name is the same in both, as far as it would be applied. Two directories are the same if their modes are.
pub(super) fn is_same(
    changes: &Dir,
    beneath: Option<&Dir>,
    name: &EntryName,
    new: &Metadata,
    old: &Metadata,
) -> bool {
    let Some(beneath) = beneath else { return false };
    if new.kind != old.kind {
        return false;
    }
    match new.kind {
        FileKind::Directory => new.mode & MODE == old.mode & MODE,
        FileKind::Symlink => {
            changes.read_link(name).is_ok_and(|new| beneath.read_link(name).is_ok_and(|old| new == old))
        }
        FileKind::File => {
            new.mode & MODE == old.mode & MODE
                && new.size == old.size
                && same_content(changes, beneath, name).unwrap_or(false)
        }
        _ => false,
    }
}

fn same_content(changes: &Dir, beneath: &Dir, name: &EntryName) -> Option<bool> {
    let (mut new, mut old) = (changes.open_file(name).ok()?.file, beneath.open_file(name).ok()?.file);
    let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
    loop {
        let read = new.read(&mut left).ok()?;
        if read == 0 {
            return Some(old.read(&mut right).ok()? == 0);
        }
        if old.read_exact(&mut right[..read]).is_err() || left[..read] != right[..read] {
            return Some(false);
        }
    }
}

/// Returns the reasons against a change.
pub(super) fn judge(change: &Judged<'_>, since: Since) -> Judgement {
    let Some(name) = change.path.last() else { return Judgement::default() };
    let obstacle = match (change.kind, change.meta.kind) {
        (Kind::Deleted, _) | (_, FileKind::Symlink) => None,
        (_, FileKind::File) => match change.changes.open_file(name) {
            Ok(_) => None,
            Err(_) => Some("its mode does not allow its owner to read it"),
        },
        (_, FileKind::Directory) => match change.changes.open_dir(name) {
            Ok(_) if change.path.len() >= MAX_DEPTH => Some("it is nested more than 128 levels deep"),
            Ok(_) => None,
            Err(_) => Some("its mode does not allow its owner to list it"),
        },
        (_, FileKind::Fifo) => Some("it is a FIFO, which cannot be applied"),
        (_, FileKind::Socket) => Some("it is a socket, which cannot be applied"),
        (_, FileKind::Device | FileKind::Other) => Some("it is a special file, which cannot be applied"),
    };
    Judgement { objection: objection(change, name, since), obstacle }
}

fn objection(change: &Judged<'_>, name: &EntryName, since: Since) -> Option<&'static str> {
    if is_obeyed_by_git(change) {
        return Some("git on the host would run or obey it: review it first");
    }
    let changed = match (change.old, change.beneath) {
        (Some(old), Some(beneath)) if old.kind == FileKind::Directory => {
            // Two directories differ here only in their modes; the names in them are judged one by one.
            let goes = change.kind == Kind::Deleted || change.meta.kind != FileKind::Directory;
            goes && beneath.open_dir(name).is_ok_and(|old| has_changed_below(&old, since, 0))
        }
        (Some(old), _) => old.changed >= since.time,
        (None, Some(beneath)) if !since.resumed && change.meta.kind == FileKind::File => {
            let copied = change.changes.open_file(name).is_ok_and(|file| was_copied_up(&file.file));
            if copied && own_change(beneath).is_none_or(|changed| changed >= since.time) {
                return Some("it seems to have been removed from the directory beneath since the run began");
            }
            false
        }
        _ => false,
    };
    changed.then_some("the directory beneath has changed here since the run began")
}

/// Returns true for hooks, configuration and redirections of a repository, at any level.
///
/// Git obeys them on the host, with all the rights of its user.
fn is_obeyed_by_git(change: &Judged<'_>) -> bool {
    let is = |name: &EntryName, any: &[&str]| {
        any.iter().any(|any| name.as_bytes().eq_ignore_ascii_case(any.as_bytes()))
    };
    let Some(at) = change.path.iter().rposition(|name| is(name, &[".git"])) else { return false };
    let below = &change.path[at + 1..];
    match below {
        // The removal of a repository, and a `.git` that leads elsewhere.
        [] => change.kind == Kind::Deleted || change.meta.kind != FileKind::Directory,
        _ if change.kind != Kind::Deleted && change.meta.kind == FileKind::Symlink => true,
        [first, rest @ ..] => {
            let obeyed = ["hooks", "config", "config.worktree", "commondir", "gitdir"];
            is(first, &obeyed)
                || is(first, &["modules", "worktrees"]) && rest.iter().any(|name| is(name, &obeyed))
        }
    }
}

/// Returns true if anything in the directory is newer than the run. Unreadable names count as new.
fn has_changed_below(directory: &Dir, since: Since, depth: usize) -> bool {
    if depth >= MAX_DEPTH || own_change(directory).is_none_or(|changed| changed >= since.time) {
        return true;
    }
    let Ok(names) = names(directory) else { return true };
    names.iter().any(|name| match directory.metadata(name) {
        Ok(meta) if meta.kind == FileKind::Directory => {
            directory.open_dir(name).map_or(true, |inner| has_changed_below(&inner, since, depth + 1))
        }
        Ok(meta) => meta.changed >= since.time,
        Err(_) => true,
    })
}

/// Returns when the directory itself was last changed: a name in it, or its mode.
fn own_change(directory: &Dir) -> Option<(i64, u32)> {
    let handle =
        openat(directory, ".", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&handle).ok()?;
    Some((stat.st_ctime, u32::try_from(stat.st_ctime_nsec).unwrap_or(0)))
}
