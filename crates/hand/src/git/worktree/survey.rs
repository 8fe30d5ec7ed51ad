//! A first look at a large work tree, by several threads: what is plainly as the index has it.
//!
//! git's status of a clean work tree takes little but asking the kernel for each file, which several processors can do at the
//! same time. Each thread takes some entries of the index after the other, opens the directories in which they are, by
//! handles and through no link as [`super::Walk`] does, and settles what is unchanged by its times and size, and directories
//! in which nothing else is. It reads no file, knows nothing of libgit2 and decides nothing but that there is nothing to say:
//! whatever is not plainly so, an error included, is left to the walk, which looks at it as if there had been no survey. So
//! the answer is the same, however many threads there are.
//!
//! A file that changes between the survey and the walk counts as it was when it was looked at, as one does that changes when
//! the walk has passed it.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use git2::Repository;
use rustix::fs::{AtFlags, RawDir, statat};

use super::rules::Rules;
use super::{Wanted, open};
use crate::git::beneath::Beneath;
use crate::git::difference::{is_wanted, may_hold_wanted};
use crate::git::error::GitError;
use crate::git::index::{Child, Entry, Index};
use crate::threads::{Begun, Shared, Threads};

/// Entries for which a survey pays.
const WORTHWHILE: usize = 2_000;
/// Entries that a thread takes at a time: enough to make little of the way to them, and few enough to be done together.
const SHARE: usize = 512;
/// So many more, when a directory ends with them.
const MORE: usize = 512;
/// Directories in each other that a thread looks into: each is held open, and takes some of a small stack.
const DEPTH: usize = 64;
/// Bytes of names that the kernel is asked for at a time.
const NAMES: usize = 16 * 1024;

/// A survey that the other threads are at.
pub(in super::super) struct Survey(Option<(Arc<Task>, Begun)>);

impl Survey {
    /// There is none; everything is left to the walk.
    pub(in super::super) fn none() -> Self {
        Self(None)
    }

    /// Has the other threads begin, where there are some and the index is large.
    pub(in super::super) fn begin(
        repository: &Repository,
        workspace: &Beneath,
        index: &Arc<Index>,
        wanted: Wanted<'_>,
        threads: &Threads,
    ) -> Result<Self, GitError> {
        let count = index.entries().len();
        if threads.count() == 1 || count < WORTHWHILE {
            return Ok(Self::none());
        }
        // A handle of its own, since the threads are not bound to what the caller has.
        let Ok(root) = open(workspace.as_fd(), b".") else { return Ok(Self::none()) };
        let task = Arc::new(Task {
            index: Arc::clone(index),
            root,
            rules: Rules::new(repository, index)?,
            paths: wanted.paths.iter().map(|path| (*path).to_owned()).collect(),
            untracked: wanted.untracked,
            next: Mutex::new(0),
            settled: (0..count).map(|_| AtomicU32::new(u32::MAX)).collect(),
        });
        let shared: Arc<dyn Shared> = Arc::clone(&task) as _;
        Ok(Self(Some((task, threads.begin(shared)))))
    }

    /// Takes part in it until all is done.
    pub(super) fn finish(self) -> Settled {
        Settled(self.0.map(|(task, begun)| {
            begun.finish();
            task
        }))
    }
}

/// What a survey found to be as the index has it.
pub(super) struct Settled(Option<Arc<Task>>);

impl Settled {
    /// The first `length` bytes of the name of the entry `at`, which is the first that has them: a file, or a directory with
    /// all that is beneath it.
    pub(super) fn has(&self, at: usize, length: usize) -> bool {
        let settled = self.0.as_ref().and_then(|task| task.settled.get(at));
        settled.is_some_and(|settled| settled.load(Ordering::Relaxed) as usize <= length)
    }
}

struct Task {
    index: Arc<Index>,
    root: OwnedFd,
    rules: Rules,
    paths: Vec<String>,
    untracked: bool,
    /// The first entry that nobody has taken.
    next: Mutex<usize>,
    /// Of each entry the length of the shortest part of its name that is settled, in bytes: its directories are that with the
    /// slash at the end, where it is the first entry in them.
    settled: Vec<AtomicU32>,
}

impl Shared for Task {
    fn work(&self) {
        let wanted: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        let mut names = [MaybeUninit::uninit(); NAMES];
        let mut look = Look { task: self, wanted: &wanted, names: &mut names };
        while let Some(share) = self.take() {
            look.directory(self.root.as_fd(), 0, share, 0);
        }
    }
}

impl Task {
    /// The next entries, to the end of a directory if it is near.
    fn take(&self) -> Option<Range<usize>> {
        let mut next = self.next.lock().ok()?;
        let entries = self.index.entries();
        let start = *next;
        let rest = entries.get(start..).filter(|rest| !rest.is_empty())?;
        let directory = |entry| {
            let name: &[u8] = self.index.name(entry);
            name.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |slash| &name[..slash])
        };
        let end =
            |at: &usize| rest.get(*at).is_none_or(|entry| directory(entry) != directory(&rest[*at - 1]));
        let length = (SHARE..SHARE + MORE).find(|at| *at >= rest.len() || end(at));
        let length = length.unwrap_or(SHARE).min(rest.len());
        *next = start + length;
        Some(start..*next)
    }

    fn settle(&self, at: usize, length: usize) {
        if let (Some(settled), Ok(length)) = (self.settled.get(at), u32::try_from(length)) {
            settled.store(length, Ordering::Relaxed);
        }
    }

    /// Whether these are all entries of the directory, the first `length` bytes of the name of the first of them.
    fn is_all(&self, entries: &Range<usize>, length: usize) -> bool {
        let name = |at: usize| self.index.entries().get(at).map(|entry| self.index.name(entry));
        let directory = name(entries.start).and_then(|name| name.get(..length));
        let is_in = |at: Option<usize>| {
            let name = at.and_then(name);
            name.is_some_and(|name| directory.is_none_or(|directory| name.starts_with(directory)))
        };
        !is_in(entries.start.checked_sub(1)) && !is_in(Some(entries.end))
    }
}

/// One thread's.
struct Look<'t> {
    task: &'t Task,
    wanted: &'t [&'t str],
    names: &'t mut [MaybeUninit<u8>; NAMES],
}

impl Look<'_> {
    /// Settles what there is to settle of `entries`, which are in this directory; its path is the first `length` bytes of
    /// their names. Whether all of it is.
    fn directory(
        &mut self,
        directory: BorrowedFd<'_>,
        length: usize,
        entries: Range<usize>,
        depth: usize,
    ) -> bool {
        let task = self.task;
        let (mut is_settled, mut children) = (true, 0);
        for child in task.index.children(entries.clone(), length) {
            is_settled &= match child {
                Child::File { name, entries } => self.file(directory, name, entries),
                Child::Directory { name, entries } => {
                    self.inner(directory, name, length + name.len() + 1, entries, depth + 1)
                }
            };
            children += 1;
        }
        is_settled = is_settled
            && task.is_all(&entries, length)
            // All of them are there: what else there is makes more of them.
            && (!task.untracked || self.wanted.is_empty() && self.count(directory, children) == Some(children));
        if is_settled {
            task.settle(entries.start, length);
        }
        is_settled
    }

    fn inner(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &[u8],
        length: usize,
        entries: Range<usize>,
        depth: usize,
    ) -> bool {
        let Some(path) = self.name(entries.start).and_then(|name| name.get(..length)) else { return false };
        if !may_hold_wanted(path, self.wanted) {
            return true;
        }
        depth <= DEPTH
            && open(directory, name).is_ok_and(|inner| self.directory(inner.as_fd(), length, entries, depth))
    }

    fn file(&self, directory: BorrowedFd<'_>, name: &[u8], entries: Range<usize>) -> bool {
        let Some(path) = self.name(entries.start) else { return false };
        if !is_wanted(path, self.wanted) {
            return true;
        }
        let is_settled = match self.task.index.entries().get(entries.clone()) {
            Some([entry]) => self.is_as(directory, name, entry),
            _ => false,
        };
        if is_settled {
            self.task.settle(entries.start, path.len());
        }
        is_settled
    }

    fn is_as(&self, directory: BorrowedFd<'_>, name: &[u8], entry: &Entry) -> bool {
        entry.stage == 0
            && !entry.is_intended
            && !entry.is_skipped
            && statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| {
                let mode = self.task.rules.mode(entry, &stat);
                mode != 0 && mode == entry.mode && self.task.rules.is_unchanged(entry, &stat)
            })
    }

    /// Names in a directory, up to one more than `most`, without `.git`, which is never part of a work tree.
    fn count(&mut self, directory: BorrowedFd<'_>, most: usize) -> Option<usize> {
        let mut names = RawDir::new(directory, &mut self.names[..]);
        let mut count = 0;
        while let Some(entry) = names.next() {
            count += usize::from(!matches!(entry.ok()?.file_name().to_bytes(), b"." | b".." | b".git"));
            if count > most {
                break;
            }
        }
        Some(count)
    }

    fn name(&self, at: usize) -> Option<&[u8]> {
        let index = &self.task.index;
        index.entries().get(at).map(|entry| index.name(entry))
    }
}
