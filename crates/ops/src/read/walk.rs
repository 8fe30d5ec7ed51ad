//! The walk that glob and grep share: regular files below a directory, sorted by path byte by byte, through open
//! directory handles only.
//!
//! A tree can be endless, change all the time and be full of traps. So the walk is bounded in entries and depth, asks
//! between entries whether to stop, follows no link, and passes over what has vanished.

use std::ops::ControlFlow;
use std::vec;

use jail::{Access, Dir, Entry, EntryName, FileKind, Jail, OpenErrorKind, RelPath, SandboxPath};

use super::ignores::Ignores;
use super::place::{below, in_mount};
use crate::cancel::{Cancel, Stopped};

/// Entries that one walk looks at.
const MAX_ENTRIES: u64 = 200_000;
/// Directories that are open at once, one for each level.
const MAX_DEPTH: usize = 64;

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
    pub(super) dir: &'w Dir,
    pub(super) name: &'w EntryName,
    /// Path from where the walk began, for showing and matching.
    pub(super) shown: &'w str,
}

/// How far a walk came.
#[derive(Debug, Default)]
pub(super) struct Walked {
    pub(super) entries: u64,
    /// It was told to stop.
    pub(super) stopped: Option<Stopped>,
    /// There was more, deeper or beyond the bound.
    pub(super) bounded: bool,
    /// Directories that could not be read.
    pub(super) unread: u64,
}

impl Walked {
    /// What a result has to say about what was not visited.
    pub(super) fn hints(&self) -> Vec<String> {
        let mut hints = Vec::new();
        if self.bounded {
            hints.push(format!(
                "the tree is larger than one call looks at ({MAX_ENTRIES} entries, {MAX_DEPTH} levels): give a path further down"
            ));
        }
        if self.unread > 0 {
            hints.push(format!("{} directories could not be read in full", self.unread));
        }
        hints
    }
}

/// Visits the files below `dir`, which was opened at `start` (a path without links), until `visit` breaks.
pub(super) fn walk(
    jail: &Jail,
    start: &SandboxPath,
    dir: Dir,
    rules: Rules,
    cancel: &Cancel,
    mut visit: impl FnMut(&Visit<'_>) -> ControlFlow<()>,
) -> Walked {
    let mut walker = Walker {
        jail,
        start,
        rules,
        cancel,
        ignores: Ignores::default(),
        raw: Vec::new(),
        shown: String::new(),
        walked: Walked::default(),
    };
    if !rules.ignored {
        walker.enter_parents();
    }
    let ended = walker.run(dir, &mut visit);
    if let Err(End::Stopped(stopped)) = ended {
        walker.walked.stopped = Some(stopped);
    }
    walker.walked
}

/// Why a walk ended before its end.
enum End {
    Stopped(Stopped),
    Enough,
}

/// A directory on the way.
struct Level {
    dir: Dir,
    rel: RelPath,
    rest: vec::IntoIter<Entry>,
    /// Lengths of `raw` and `shown` in this directory.
    raw: usize,
    shown: usize,
}

struct Walker<'a> {
    jail: &'a Jail,
    start: &'a SandboxPath,
    rules: Rules,
    cancel: &'a Cancel,
    ignores: Ignores,
    /// Path from the mount's root, as the file system has it.
    raw: Vec<u8>,
    shown: String,
    walked: Walked,
}

impl Walker<'_> {
    /// Ignore files count from the mount's root on, wherever the walk begins.
    fn enter_parents(&mut self) {
        let mut parents: Vec<_> = std::iter::successors(self.start.rel().parent(), RelPath::parent).collect();
        while let Some(parent) = parents.pop() {
            let path = in_mount(self.start.mount(), &parent);
            if let Ok(Ok(dir)) = self.jail.readable(&path).map(|place| place.open_dir()) {
                self.ignores.enter(&dir, &with_slash(&parent));
            }
        }
    }

    fn run(&mut self, top: Dir, visit: &mut impl FnMut(&Visit<'_>) -> ControlFlow<()>) -> Result<(), End> {
        let mut levels = Vec::new();
        self.raw = with_slash(self.start.rel());
        levels.push(self.enter(top, self.start.rel().clone())?);
        while let Some(level) = levels.last_mut() {
            self.cancel.check().map_err(End::Stopped)?;
            self.raw.truncate(level.raw);
            self.shown.truncate(level.shown);
            let Some(entry) = level.rest.next() else {
                levels.pop();
                self.ignores.leave();
                continue;
            };
            let Some(rel) = self.admit(level, &entry) else { continue };
            if entry.kind == FileKind::File {
                let visited = visit(&Visit { dir: &level.dir, name: &entry.name, shown: &self.shown });
                if visited.is_break() {
                    return Err(End::Enough);
                }
                continue;
            }
            if levels.len() == MAX_DEPTH {
                self.walked.bounded = true;
                continue;
            }
            if let Some(level) = self.descend(&levels, &entry, rel)? {
                levels.push(level);
            }
        }
        Ok(())
    }

    /// Puts the entry's name on the paths; its place when it is to be visited.
    fn admit(&mut self, level: &Level, entry: &Entry) -> Option<RelPath> {
        let (name, is_dir) = (entry.name.as_bytes(), entry.kind == FileKind::Directory);
        let left_out = !(is_dir || entry.kind == FileKind::File)
            || name == b".git"
            || (!self.rules.hidden && name.starts_with(b"."))
            || (!self.rules.node_modules && is_dir && name == b"node_modules");
        if left_out {
            return None;
        }
        let rel = below(&level.rel, &entry.name)?;
        self.jail.check(&in_mount(self.start.mount(), &rel), Access::Read).ok()?;
        self.raw.extend_from_slice(name);
        self.shown.push_str(&entry.name.shown());
        (self.rules.ignored || !self.ignores.excludes(&self.raw, is_dir)).then_some(rel)
    }

    fn descend(&mut self, levels: &[Level], entry: &Entry, rel: RelPath) -> Result<Option<Level>, End> {
        let Some(level) = levels.last() else { return Ok(None) };
        match level.dir.open_dir(&entry.name) {
            Ok(dir) => {
                self.raw.push(b'/');
                self.shown.push('/');
                self.enter(dir, rel).map(Some)
            }
            Err(error) => {
                // Gone, or something else by now.
                let vanished = matches!(
                    error.kind,
                    OpenErrorKind::NotFound | OpenErrorKind::NotADirectory | OpenErrorKind::Symlink
                );
                self.walked.unread += u64::from(!vanished);
                Ok(None)
            }
        }
    }

    /// Reads a directory's names, as many as the bound still permits, and its ignore files.
    fn enter(&mut self, dir: Dir, rel: RelPath) -> Result<Level, End> {
        let mut names = Vec::new();
        match dir.entries() {
            Ok(entries) => {
                for entry in entries {
                    self.cancel.check().map_err(End::Stopped)?;
                    let Ok(entry) = entry else {
                        self.walked.unread += 1;
                        break;
                    };
                    if self.walked.entries == MAX_ENTRIES {
                        self.walked.bounded = true;
                        break;
                    }
                    self.walked.entries += 1;
                    names.push(entry);
                }
            }
            Err(_) => self.walked.unread += 1,
        }
        names.sort_by(|a, b| path_order(a).cmp(path_order(b)));
        if !self.rules.ignored {
            self.ignores.enter(&dir, &self.raw);
        }
        Ok(Level { dir, rel, rest: names.into_iter(), raw: self.raw.len(), shown: self.shown.len() })
    }
}

/// A directory's files are sorted as if its name ended in the slash that follows: `a-b` comes before `a/b`.
fn path_order(entry: &Entry) -> impl Iterator<Item = &u8> {
    let slash: &[u8] = if entry.kind == FileKind::Directory { b"/" } else { b"" };
    entry.name.as_bytes().iter().chain(slash)
}

fn with_slash(rel: &RelPath) -> Vec<u8> {
    let mut path = rel.as_str().as_bytes().to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path
}
