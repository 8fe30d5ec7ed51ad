//! The walk that glob and grep share: regular files below a directory, sorted by path byte by byte, through open
//! directory handles only.
//!
//! A tree can be endless, change all the time and be full of traps. So the walk is bounded in entries and depth, asks
//! between entries whether to stop, follows no link, and passes over what has vanished.

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

/// Entries that one walk looks at.
const MAX_ENTRIES: u64 = 200_000;
/// Directories that are open at once, one for each level.
const MAX_DEPTH: usize = 64;
/// Bytes of names that one walk holds at once: what the most entries of ordinary names have.
const MAX_HELD: usize = 8 * 1024 * 1024;

/// What a walk leaves out. `.git` always, unless the walk begins in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// Visit names that begin with a dot.
    pub(super) hidden: bool,
    /// Visit what ignore files exclude.
    pub(super) ignored: bool,
    /// Visit directories named `node_modules`.
    pub(super) node_modules: bool,
}

/// A file that the walk came to.
pub(super) struct Visit<'w> {
    /// Can be kept: the file is opened in this directory whatever becomes of the walk.
    pub(super) dir: &'w Arc<Dir>,
    pub(super) name: EntryName,
    /// Path from where the walk began, for showing and matching.
    pub(super) shown: &'w str,
}

/// A walk on its way. It goes on when it is asked for the next file, on whichever thread asks.
pub(super) struct Walk<'a> {
    jail: &'a Jail,
    start: &'a SandboxPath,
    rules: Rules,
    /// Files of other names are passed over.
    filter: Option<&'a Pattern>,
    cancel: &'a Cancel,
    ignores: Ignores,
    /// From the top to where it is; empty when it is over.
    levels: Vec<Level>,
    /// Path from the mount's root, as the file system has it.
    raw: Vec<u8>,
    shown: String,
    /// Bytes of names that are still to come.
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

    /// The next file; `None` at the end, for whatever reason.
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

    /// How far it came.
    pub(super) fn finish(self) -> Walked {
        Walked { rules_cut: self.ignores.cut(), ..self.walked }
    }

    fn stop(&mut self, stopped: Stopped) {
        self.walked.stopped = Some(stopped);
        self.levels.clear();
    }

    /// Ignore files count from the mount's root on, wherever the walk begins. Those above its beginning do not if they exclude
    /// all that is in it by its path: it was asked for by name.
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

    /// The next file's name, in the last level; the paths are set to it.
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

    /// Puts the entry's name on the paths; its place when it is to be visited.
    fn admit(&mut self, entry: &Entry) -> Option<SandboxPath> {
        let (name, is_dir) = (entry.name.as_bytes(), entry.kind == FileKind::Directory);
        if name == b".git" {
            return None;
        }
        let rel = below(self.levels.last()?.place.rel(), &entry.name)?;
        let place = SandboxPath::new(self.start.mount(), rel);
        if let Err(refusal) = self.jail.check(&place, Access::Read) {
            // Each counts, whatever the pattern: a count by pattern would tell its name.
            self.walked.left_out.withheld += u64::from(refusal.is_by_rule());
            return None;
        }
        self.raw.extend_from_slice(name);
        self.shown.push_str(&entry.name.shown());
        let wanted = is_dir || self.is_wanted();
        let left_out = &mut self.walked.left_out;
        let count = match entry.kind {
            // It may lead to a directory.
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

    /// Returns whether the current file passes the filter.
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
                // Gone, or something else by now.
                let vanished = matches!(
                    error.kind,
                    OpenErrorKind::NotFound | OpenErrorKind::NotADirectory | OpenErrorKind::Symlink
                );
                self.walked.left_out.unreadable += u64::from(!vanished);
                Ok(())
            }
        }
    }

    /// Goes into a directory, with its ignore files.
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

    /// Reads a directory's names, as many as the bound still permits.
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
