//! Implements `git log`: commits from a revision back, the newest first.
//!
//! It walks only as far as the output needs, so that the last commits of a long history are found at once. With paths, a commit
//! counts if it differs there from each of its parents. After a merge that is the same as one of its parents, only that parent is
//! followed.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::path::Path;

use git2::{Commit, Oid, Repository, Tree};
use jail::SandboxPath;
use operations::{GitLogFlag, GitRevisions};

use super::error::GitError;
use super::history::{self, Style};
use super::output::Output;
use super::paths;
use super::withheld::Withheld;

/// Writes at most `max_count` commits.
pub(super) fn write(
    repository: &Repository,
    withheld: &Withheld<'_>,
    (flags, max_count): (&[GitLogFlag], u32),
    revisions: &GitRevisions,
    limit_to: &[SandboxPath],
    output: &mut Output,
) -> Result<(), GitError> {
    let style = Style::of(flags, false)?;
    let limit_to: Vec<&str> = limit_to.iter().map(paths::in_work_tree).collect::<Result<_, _>>()?;
    let mut walk = Walk::of(repository, revisions, &limit_to)?;
    for number in 0..max_count {
        // Further commits would not be in the output.
        if output.is_cut() {
            break;
        }
        let Some(commit) = walk.next()? else { break };
        if number > 0 {
            style.gap(output);
        }
        style.head(&commit, output)?;
        // As with the git command, a merge is not compared with its parents.
        if let Some(formats) = style.formats.as_ref().filter(|_| commit.parent_count() < 2) {
            let diff = history::diff(repository, &commit, formats.options(), &limit_to)?;
            style.changes(diff, withheld, output)?;
        }
    }
    Ok(())
}

/// Walks commits by date, each after at least one of its children.
struct Walk<'r, 'l> {
    repository: &'r Repository,
    /// The commits to return; `None` means all.
    among: Option<HashSet<Oid>>,
    /// By time, then in the order in which they were found.
    next: BinaryHeap<(i64, Reverse<usize>, Oid)>,
    seen: HashSet<Oid>,
    limit_to: &'l [&'l str],
}

impl<'r, 'l> Walk<'r, 'l> {
    fn of(
        repository: &'r Repository,
        revisions: &GitRevisions,
        limit_to: &'l [&'l str],
    ) -> Result<Self, GitError> {
        let first = history::commit(repository, &revisions.of)?;
        let among = match &revisions.without {
            Some(without) => {
                let mut reached = repository.revwalk()?;
                reached.push(first.id())?;
                reached.hide(history::commit(repository, without)?.id())?;
                Some(reached.collect::<Result<_, _>>()?)
            }
            None => None,
        };
        let mut walk = Self { repository, among, next: BinaryHeap::new(), seen: HashSet::new(), limit_to };
        walk.add(&first);
        Ok(walk)
    }

    fn add(&mut self, commit: &Commit<'_>) {
        let id = commit.id();
        if self.among.as_ref().is_none_or(|among| among.contains(&id)) && self.seen.insert(id) {
            self.next.push((commit.time().seconds(), Reverse(self.seen.len()), id));
        }
    }

    fn next(&mut self) -> Result<Option<Commit<'r>>, GitError> {
        while let Some((_, _, id)) = self.next.pop() {
            let commit = self.repository.find_commit(id)?;
            let parents = commit.parent_ids().map(|id| self.repository.find_commit(id));
            let parents: Vec<Commit<'_>> = parents.collect::<Result<_, _>>()?;
            let same = self.same(&commit, &parents)?;
            for parent in same.unwrap_or(&parents) {
                self.add(parent);
            }
            if same.is_none() {
                return Ok(Some(commit));
            }
        }
        Ok(None)
    }

    /// Returns, for a commit that changes none of the paths, the parent from which it has them, if there is one.
    fn same<'p>(
        &self,
        commit: &Commit<'_>,
        parents: &'p [Commit<'r>],
    ) -> Result<Option<&'p [Commit<'r>]>, GitError> {
        if self.limit_to.is_empty() {
            return Ok(None);
        }
        let here = self.entries(&commit.tree()?)?;
        if parents.is_empty() {
            return Ok(here.iter().all(Option::is_none).then_some(parents));
        }
        for parent in parents.chunks(1) {
            if let [only] = parent
                && self.entries(&only.tree()?)? == here
            {
                return Ok(Some(parent));
            }
        }
        Ok(None)
    }

    fn entries(&self, tree: &Tree<'_>) -> Result<Vec<Option<(Oid, i32)>>, GitError> {
        let entry = |path: &&str| match tree.get_path(Path::new(path)) {
            _ if path.is_empty() => Ok((!tree.is_empty()).then(|| (tree.id(), 0))),
            Ok(entry) => Ok(Some((entry.id(), entry.filemode()))),
            Err(error) if error.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        };
        self.limit_to.iter().map(entry).collect()
    }
}
