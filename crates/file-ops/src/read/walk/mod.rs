//! The walk that glob and grep share. It visits regular files below a directory, sorted by path byte by byte, through open directory
//! handles only.
//!
//! A tree can be endless, change all the time and be full of traps. So the walk is bounded in entries and depth, checks for cancellation
//! between entries, follows no link, and skips entries that have vanished.

mod level;
mod walked;

use std::sync::Arc;

use jail::{Access, Dir, Entry, EntryName, FileKind, Jail, OpenErrorKind, RelPath, SandboxPath};

use self::level::{Level, Names, path_order};
pub(super) use self::walked::Walked;
use super::ignores::Ignores;
use super::location::{below, in_mount};
use super::pattern::Pattern;
use crate::cancel::{Cancel, Stopped};

/// Most entries that one walk visits.
const MAX_ENTRIES: u64 = 200_000;
/// Most directories that are open at once, one for each level.
const MAX_DEPTH: usize = 64;
/// Most bytes of names that one walk holds at once; enough for the most entries with ordinary names.
const MAX_HELD: usize = 8 * 1024 * 1024;

/// Entries that a walk includes. `.git` is always left out, unless the walk begins in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Visit names that begin with a dot.
    pub(super) hidden: bool,
    /// Visit what ignore files exclude.
    pub(super) ignored: bool,
    /// Visit directories named `node_modules`.
    pub(super) node_modules: bool,
}

/// File that the walk visits.
pub(super) struct Visit<'w> {
    /// Handle of the file's directory, which may outlive the walk.
    pub(super) dir: &'w Arc<Dir>,
    pub(super) name: EntryName,
    /// Path from the start of the walk, for display and matching.
    pub(super) shown: &'w str,
}

/// A walk in progress. It advances when a caller asks for the next file, on the thread of that caller.
pub(super) struct Walk<'a> {
    jail: &'a Jail,
    start: &'a SandboxPath,
    rules: Rules,
    /// Pattern of the wanted files; others are skipped.
    filter: Option<&'a Pattern>,
    cancel: &'a Cancel,
    ignores: Ignores,
    /// Directories from the top to the current one; empty when the walk is over.
    levels: Vec<Level>,
    /// Path from the mount's root, in the bytes of the file system.
    raw: Vec<u8>,
    shown: String,
    /// Bytes of names that are still to be visited.
    held: usize,
    walked: Walked,
}

impl<'a> Walk<'a> {
    /// Begins in `dir`, which was opened at `start` (a path without links).
    pub(super) fn new(
        jail: &'a Jail,
        start: &'a SandboxPath,
        dir: Dir,
        rules: Rules,
        filter: Option<&'a Pattern>,
        cancel: &'a Cancel,
    ) -> Self {
        let mut walk = Self {
            jail,
            start,
            rules,
            filter,
            cancel,
            ignores: Ignores::default(),
            levels: Vec::new(),
            raw: with_slash(start.rel()),
            shown: String::new(),
            held: 0,
            walked: Walked::default(),
        };
        if !rules.ignored {
            walk.enter_parents();
        }
        if let Err(stopped) = walk.enter(dir, start.clone()) {
            walk.stop(stopped);
        }
        walk
    }

    /// Returns the next file, or `None` at the end of the walk, for any reason.
    pub(super) fn next(&mut self) -> Option<Visit<'_>> {
        match self.advance() {
            Ok(name) => {
                let (name, level) = (name?, self.levels.last()?);
                Some(Visit { dir: &level.dir, name, shown: &self.shown })
            }
            Err(stopped) => {
                self.stop(stopped);
                None
            }
        }
    }

    /// Returns how far the walk came.
    pub(super) fn finish(self) -> Walked {
        Walked { rules_cut: self.ignores.cut(), ..self.walked }
    }

    fn stop(&mut self, stopped: Stopped) {
        self.walked.stopped = Some(stopped);
        self.levels.clear();
    }

    /// Enters the directories from the mount's root to the start, so that their ignore files count.
    ///
    /// Ignore files above the start do not count if they exclude everything in it by its path, because the caller named it.
    fn enter_parents(&mut self) {
        let mut parents: Vec<_> = std::iter::successors(self.start.rel().parent(), RelPath::parent).collect();
        while let Some(parent) = parents.pop() {
            let path = in_mount(self.start.mount(), &parent);
            if let Ok(Ok(dir)) = self.jail.readable(&path).map(|place| place.open_dir()) {
                self.ignores.enter(&dir, &with_slash(&parent), |_| true);
            }
        }
        if self.ignores.exclude_all_in(&self.raw) {
            self.ignores.forget();
        }
    }

    /// Finds the next file's name, in the last level, and sets the paths to it.
    fn advance(&mut self) -> Result<Option<EntryName>, Stopped> {
        while let Some(level) = self.levels.last_mut() {
            self.cancel.check()?;
            self.raw.truncate(level.raw);
            self.shown.truncate(level.shown);
            let Some(entry) = level.rest.next() else {
                self.held -= level.held;
                self.levels.pop();
                self.ignores.leave();
                continue;
            };
            let Some(place) = self.admit(&entry) else { continue };
            if entry.kind == FileKind::File {
                if self.is_wanted() {
                    return Ok(Some(entry.name));
                }
                continue;
            }
            if self.filter.is_some_and(|filter| filter.matches(&self.shown)) {
                self.walked.meet(&self.shown);
            }
            if self.levels.len() == MAX_DEPTH {
                self.walked.bounded = true;
            } else {
                self.descend(&entry, place)?;
            }
        }
        Ok(None)
    }

    /// Appends the entry's name to the paths, and returns its path if the walk should visit it.
    fn admit(&mut self, entry: &Entry) -> Option<SandboxPath> {
        let (name, is_dir) = (entry.name.as_bytes(), entry.kind == FileKind::Directory);
        if name == b".git" {
            return None;
        }
        let rel = below(self.levels.last()?.place.rel(), &entry.name)?;
        let place = SandboxPath::new(self.start.mount(), rel);
        if let Err(refusal) = self.jail.check(&place, Access::Read) {
            // Each counts, whatever the pattern is: a count by pattern would reveal the name.
            self.walked.left_out.withheld += u64::from(refusal.is_by_rule());
            return None;
        }
        self.raw.extend_from_slice(name);
        self.shown.push_str(&entry.name.shown());
        let wanted = is_dir || self.is_wanted();
        let left_out = &mut self.walked.left_out;
        let count = match entry.kind {
            // The link may lead to a directory.
            FileKind::Symlink => {
                left_out.links += 1;
                return None;
            }
            FileKind::File | FileKind::Directory => {
                let excludes =
                    if self.rules.ignored { None } else { self.ignores.excludes(&self.raw, is_dir) };
                if !self.rules.hidden && name.starts_with(b".") && excludes != Some(false) {
                    &mut left_out.hidden
                } else if !self.rules.node_modules && is_dir && name == b"node_modules"
                    || excludes == Some(true)
                {
                    &mut left_out.ignored
                } else {
                    return Some(place);
                }
            }
            FileKind::Fifo | FileKind::Socket | FileKind::Device | FileKind::Other => &mut left_out.special,
        };
        *count += u64::from(wanted);
        None
    }

    /// Returns true if the current file passes the filter.
    fn is_wanted(&self) -> bool {
        self.filter.is_none_or(|filter| filter.matches(&self.shown))
    }

    fn descend(&mut self, entry: &Entry, place: SandboxPath) -> Result<(), Stopped> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        match level.dir.open_dir(&entry.name) {
            Ok(dir) => {
                self.raw.push(b'/');
                self.shown.push('/');
                self.enter(dir, place)
            }
            Err(error) => {
                // The entry has vanished or was replaced.
                let vanished = matches!(
                    error.kind,
                    OpenErrorKind::NotFound | OpenErrorKind::NotADirectory | OpenErrorKind::Symlink
                );
                self.walked.left_out.unreadable += u64::from(!vanished);
                Ok(())
            }
        }
    }

    /// Enters a directory and reads its ignore files.
    fn enter(&mut self, dir: Dir, place: SandboxPath) -> Result<(), Stopped> {
        let names = self.names(&dir)?;
        if !self.rules.ignored {
            self.ignores.enter(&dir, &self.raw, |name| names.may_have(name));
        }
        self.held += names.held;
        self.levels.push(Level {
            dir: Arc::new(dir),
            place,
            rest: names.sorted.into_iter(),
            held: names.held,
            raw: self.raw.len(),
            shown: self.shown.len(),
        });
        Ok(())
    }

    /// Reads as many of a directory's names as the limit still permits.
    fn names(&mut self, dir: &Dir) -> Result<Names, Stopped> {
        let mut names = Names::default();
        let Ok(entries) = dir.entries() else {
            self.walked.left_out.unreadable += 1;
            return Ok(Names { partial: true, ..names });
        };
        for entry in entries {
            self.cancel.check()?;
            let Ok(entry) = entry else {
                self.walked.left_out.unreadable += 1;
                names.partial = true;
                break;
            };
            let held = size_of::<Entry>() + entry.name.as_bytes().len();
            if self.walked.entries == MAX_ENTRIES || self.held + names.held + held > MAX_HELD {
                self.walked.bounded = true;
                names.partial = true;
                break;
            }
            self.walked.entries += 1;
            names.held += held;
            names.sorted.push(entry);
        }
        names.sorted.sort_unstable_by(path_order);
        Ok(names)
    }
}

fn with_slash(rel: &RelPath) -> Vec<u8> {
    let mut path = rel.as_str().as_bytes().to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path
}
