//! Counts and lists the commits that are exchanged.

use std::collections::HashSet;

use git2::{Commit, Oid, Repository, Sort};

use super::super::ancestry::{are_known_ancestors, parents};
use super::super::error::{GitError, shown};
use super::super::output::Output;

/// Most commits that are counted.
const COUNTED: usize = 10_000;
/// Most commits that are listed.
const LISTED: usize = 50;
/// Files that may be the cause of a list that passes over commits.
const OTHERS: &str = "`shallow` or `objects/info/commit-graph`";

/// Commits that one side has and the other one has not, the newest first.
pub(super) struct Commits {
    ids: Vec<Oid>,
    /// There are more than the ids.
    is_cut: bool,
}

impl Commits {
    /// Walks from `new`, without the commits that `known` reaches. Ids that the repository does not have are ignored.
    pub(super) fn between(
        repository: &Repository,
        new: &[Oid],
        known: impl IntoIterator<Item = Oid>,
    ) -> Result<Self, GitError> {
        let commit =
            |id: Oid| repository.find_object(id, None).and_then(|object| object.peel_to_commit()).ok();
        let mut walk = repository.revwalk()?;
        walk.set_sorting(Sort::TIME)?;
        for commit in new.iter().copied().filter_map(commit) {
            walk.push(commit.id())?;
        }
        for commit in known.into_iter().filter_map(commit) {
            walk.hide(commit.id())?;
        }
        let mut ids = walk.take(COUNTED + 1).collect::<Result<Vec<_>, _>>()?;
        let is_cut = ids.len() > COUNTED;
        ids.truncate(COUNTED);
        Ok(Self { ids, is_cut })
    }

    /// Refuses a list that passes over commits which a push would send: `shallow` and the commit graph of the repository are the agent's.
    ///
    /// The new commit, and each parent that the text of a listed one names, has to be listed, absent here, or known to the server.
    pub(super) fn demand_whole(
        &self,
        repository: &Repository,
        new: Option<Oid>,
        known: impl IntoIterator<Item = Oid>,
    ) -> Result<(), GitError> {
        if self.is_cut {
            return Ok(());
        }
        let objects = repository.odb()?;
        let listed: HashSet<Oid> = self.ids.iter().copied().collect();
        let mut before: HashSet<Oid> = new.into_iter().filter(|id| !listed.contains(id)).collect();
        for id in &self.ids {
            let parents = parents(&objects, *id).ok_or(GitError::ChangedHistory(OTHERS))?;
            before.extend(parents.into_iter().filter(|id| !listed.contains(id) && objects.exists(*id)));
        }
        if are_known_ancestors(&objects, before, known) {
            Ok(())
        } else {
            Err(GitError::ChangedHistory(OTHERS))
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.ids.len() as u64
    }

    /// Returns the count, for people.
    pub(super) fn counted(&self) -> String {
        match (self.ids.len(), self.is_cut) {
            (1, _) => "1 commit".to_owned(),
            (count, false) => format!("{count} commits"),
            (count, true) => format!("more than {count} commits"),
        }
    }

    /// Writes a line for each of the first commits.
    pub(super) fn write(&self, repository: &Repository, output: &mut Output) -> Result<(), GitError> {
        for id in self.ids.iter().take(LISTED) {
            let commit = repository.find_commit(*id)?;
            output.push_str(&format!("  {} {}\n", digits(*id), summary(&commit)));
        }
        if self.ids.len() > LISTED {
            output.push_str(&format!("  (and {} more)\n", self.ids.len() - LISTED));
        }
        Ok(())
    }

    /// Returns the first commit that none of these follows on, `None` if their history begins among them.
    pub(super) fn base(&self, repository: &Repository) -> Result<Option<Oid>, GitError> {
        let among: HashSet<&Oid> = self.ids.iter().collect();
        for id in &self.ids {
            if let Some(parent) =
                repository.find_commit(*id)?.parent_ids().find(|parent| !among.contains(parent))
            {
                return Ok(Some(parent));
            }
        }
        Ok(None)
    }
}

/// Returns the first digits of an id. They are for people, who also see the whole.
pub(super) fn digits(id: Oid) -> String {
    id.to_string().chars().take(10).collect()
}

fn summary(commit: &Commit<'_>) -> String {
    let summary = commit.summary_bytes().map(String::from_utf8_lossy).unwrap_or_default();
    shown(&summary)
}
