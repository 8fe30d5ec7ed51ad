//! What differs in the work tree: the index against the files, and the files that the index does not have.
//!
//! One walk over the directories, each opened by its handle and through no link; where there are many, several threads look
//! first ([`survey`]). A file whose times and size are those
//! of the index counts as unchanged, as in git; any other is read. Files are looked at by name in the handle of their
//! directory, which is what makes this quicker than looking at whole paths.

mod rules;
mod survey;
mod untracked;

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use git2::Oid;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use super::beneath::Beneath;
use super::contents::{Contents, LARGEST};
use super::difference::{
    Difference, GITLINK, Sides, Version, What, is_other_type, is_wanted, may_hold_wanted,
};
use super::error::GitError;
use super::gitlink;
use super::index::{Child, Entry, Index};
use rules::Rules;
use survey::Settled;

pub(super) use survey::Survey;

/// Directories in each other, at most, since each is held open.
const DEPTH: usize = 256;

/// What a walk found.
#[derive(Default)]
pub(super) struct Found {
    /// Of the paths that the index has, in their order.
    pub(super) differences: Vec<Difference>,
    /// Paths that it has not; those of whole directories end with a slash. In no order.
    pub(super) untracked: Vec<Vec<u8>>,
}

/// What to look for.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'w> {
    /// These paths and what is beneath them; without any, all.
    pub(super) paths: &'w [&'w str],
    /// Files that the index does not have, too.
    pub(super) untracked: bool,
}

/// Compares the index with the work tree, of which `survey` is a first look.
pub(super) fn differences(
    contents: &Contents<'_>,
    workspace: &Beneath,
    index: &Index,
    wanted: Wanted<'_>,
    survey: Survey,
) -> Result<Found, GitError> {
    let mut walk = Walk {
        contents,
        workspace,
        index,
        wanted,
        rules: Rules::new(contents.repository, index)?,
        settled: survey.finish(),
        found: Found::default(),
    };
    walk.directory(workspace.as_fd(), &mut Vec::new(), 0..index.entries().len(), 0)?;
    Ok(walk.found)
}

struct Walk<'w> {
    contents: &'w Contents<'w>,
    workspace: &'w Beneath,
    index: &'w Index,
    wanted: Wanted<'w>,
    rules: Rules,
    /// What need not be looked at any more.
    settled: Settled,
    found: Found,
}

impl Walk<'_> {
    /// The directory `path`, which is empty or ends with a slash, and what the index has in it.
    fn directory(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &mut Vec<u8>,
        range: Range<usize>,
        depth: usize,
    ) -> Result<(), GitError> {
        if depth > DEPTH {
            return Err(GitError::Library("directories are in each other too deeply".to_owned()));
        }
        let mut listed = if self.wanted.untracked { untracked::list(directory)? } else { Vec::new() };
        let index = self.index;
        let skip = path.len();
        for child in index.children(range, skip) {
            match child {
                Child::File { name, entries } => {
                    path.extend_from_slice(name);
                    if is_wanted(path, self.wanted.paths) {
                        self.file(directory, name, path, entries)?;
                    }
                    // Also where a directory has its name.
                    untracked::take_out(&mut listed, name, |_| true);
                }
                Child::Directory { name, entries } => {
                    path.extend_from_slice(name);
                    path.push(b'/');
                    if !self.settled.has(entries.start, path.len())
                        && may_hold_wanted(path, self.wanted.paths)
                    {
                        match open(directory, name) {
                            Ok(inner) => self.directory(inner.as_fd(), path, entries, depth + 1)?,
                            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.gone(entries),
                            Err(errno) => return Err(denied(path, errno)),
                        }
                    }
                    untracked::take_out(&mut listed, name, |kind| kind == FileType::Directory);
                }
            }
            path.truncate(skip);
        }
        self.untracked(directory, path, &listed, depth)
    }

    /// One path of the index: a file, or the sides of a conflict.
    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        range: Range<usize>,
    ) -> Result<(), GitError> {
        if self.settled.has(range.start, path.len()) {
            return Ok(());
        }
        let index = self.index;
        let Some(entries) = index.entries().get(range) else { return Ok(()) };
        let [entry] = entries else { return self.unmerged(directory, name, path, entries) };
        if entry.stage > 0 {
            return self.unmerged(directory, name, path, entries);
        }
        if entry.is_skipped {
            return Ok(());
        }
        let stat = match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Some(stat),
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(errno) => return Err(denied(path, errno)),
        };
        let now = stat.as_ref().map_or((0, None), |stat| self.look(path, entry, stat));
        let old = Version::new(entry.mode, entry.id);
        let new = match now {
            (0, _) => Version::NONE,
            (mode, Some(head)) => Version::found(mode, Some(head)),
            (mode, None) if entry.is_intended || is_other_type(mode, entry.mode) => {
                Version::found(mode, None)
            }
            (mode, None)
                if mode == entry.mode
                    && stat.as_ref().is_some_and(|stat| self.rules.is_unchanged(entry, stat)) =>
            {
                return Ok(());
            }
            (mode, None) => {
                let is_same = self.contents.id_in_work_tree(path, entry)? == Some(entry.id);
                Version::found(mode, is_same.then_some(entry.id))
            }
        };
        if !new.equals(old) {
            let old = if entry.is_intended && !new.is_none() { Version::NONE } else { old };
            self.found.differences.push(Difference::change(path, old, new));
        }
        Ok(())
    }

    /// The mode that git would give it, 0 for nothing, and the commit where it is a submodule.
    fn look(&self, path: &[u8], entry: &Entry, stat: &Stat) -> (u32, Option<Oid>) {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => match gitlink::head(self.workspace, path) {
                Some(head) => (GITLINK, Some(head)),
                // A submodule that is not checked out is as it should be.
                None if entry.mode == GITLINK => (GITLINK, Some(entry.id)),
                None => (0, None),
            },
            _ => (self.rules.mode(entry, stat), None),
        }
    }

    /// The sides of a conflict, and our own against the work tree.
    fn unmerged(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        path: &[u8],
        entries: &[Entry],
    ) -> Result<(), GitError> {
        let Some(first) = entries.first() else { return Ok(()) };
        let like = entries.iter().find(|entry| entry.stage == 2).unwrap_or(first);
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let (mode, head) = stat.as_ref().map_or((0, None), |stat| self.look(path, like, stat));
        let work_tree = if mode == 0 { Version::NONE } else { Version::found(mode, head) };
        let sides = Sides::of(entries, work_tree);
        self.found.differences.push(Difference { path: path.to_vec(), what: What::Unmerged(sides) });
        if sides.ours.is_none() {
            return Ok(());
        }
        let is_same = head.is_none()
            && !work_tree.is_none()
            && !is_other_type(mode, like.mode)
            && size(stat.as_ref()) <= LARGEST
            && self.contents.id_in_work_tree(path, like)? == Some(like.id);
        let new = if is_same { Version::found(mode, Some(like.id)) } else { work_tree };
        if !new.equals(sides.ours) {
            self.found.differences.push(Difference::change(path, sides.ours, new));
        }
        Ok(())
    }

    /// All of these are no longer there.
    fn gone(&mut self, range: Range<usize>) {
        let index = self.index;
        let Some(entries) = index.entries().get(range) else { return };
        for entries in entries.chunk_by(|one, other| index.name(one) == index.name(other)) {
            let [entry, ..] = entries else { continue };
            let path = index.name(entry);
            if entry.is_skipped || !is_wanted(path, self.wanted.paths) {
                continue;
            }
            if entry.stage == 0 {
                let old = Version::new(entry.mode, entry.id);
                self.found.differences.push(Difference::change(path, old, Version::NONE));
                continue;
            }
            let sides = Sides::of(entries, Version::NONE);
            self.found.differences.push(Difference { path: path.to_vec(), what: What::Unmerged(sides) });
            if !sides.ours.is_none() {
                self.found.differences.push(Difference::change(path, sides.ours, Version::NONE));
            }
        }
    }
}

/// A directory in another one, if it is none by a link.
fn open(directory: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
}

fn denied(path: &[u8], errno: Errno) -> GitError {
    GitError::Library(format!("{}: {errno}", super::error::shown(&String::from_utf8_lossy(path))))
}

fn size(stat: Option<&Stat>) -> u64 {
    stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or_default())
}
