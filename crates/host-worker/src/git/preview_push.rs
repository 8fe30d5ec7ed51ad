//! Finds the effects of a push on its refs, for a reviewer.
//!
//! As in `ancestry.rs`, the repository is the agent's, and its objects alone are opened: no configuration, attribute, graft,
//! replacement or commit graph. libgit2 compares the hash of each object with its name, so an object is the one that the id names, or
//! it is unknown. The server updates a ref only from the old id, so the diff between both ids is the one that lands. The repository
//! cannot prove which commits a server has: a new ref is shown by the diffs of its newest commits.

use std::collections::{HashSet, VecDeque};

use git2::{Commit, DiffOptions, ErrorClass, Object, Odb, Oid, Repository, Tree};
use host_launch::push_preview::{MOST_COMMITS, MOST_DIFF, PushPreview, PushedCommit, UpdatePreview};
use operations::{GitFormat, GitResult};

use super::ancestry::{self, LARGEST};
use super::formats::{self, Formats};
use super::output::Output;
use super::{compare, history};

/// Most files of a diff whose lines are counted.
const COUNTED: usize = 300;
/// Largest file that is shown as text, bytes.
const LARGEST_FILE: i64 = 1024 * 1024;
/// Most tags of tags that are followed.
const DEEPEST: usize = 16;
/// Most characters of an author and of a subject.
const SHOWN: usize = 200;

/// Returns the effects of updates, of which each has an old and a new id.
pub(crate) fn preview_push(updates: &[(String, String)]) -> PushPreview {
    let repository = ancestry::objects().and_then(|objects| Repository::from_odb(objects).ok());
    let objects = repository.as_ref().and_then(|repository| repository.odb().ok());
    let opened = repository.as_ref().zip(objects.as_ref());
    let mut left = Left { commits: ancestry::MOST_COMMITS, diff: MOST_DIFF };
    let preview = |(old, new): &(String, String)| {
        let ids = [old, new].map(|id| Oid::from_str(id).unwrap_or(Oid::ZERO_SHA1));
        match opened {
            Some((repository, objects)) => Update { objects, repository }.preview(ids, &mut left),
            None => UpdatePreview {
                unknown: known(ids).map(|id| id.to_string()).collect(),
                ..UpdatePreview::default()
            },
        }
    };
    PushPreview { updates: updates.iter().map(preview).collect() }
}

/// Returns the ids that are no zeros.
fn known(ids: [Oid; 2]) -> impl Iterator<Item = Oid> {
    ids.into_iter().filter(|id| !id.is_zero())
}

/// The parts of a preview that all updates share.
struct Left {
    commits: usize,
    diff: u64,
}

struct Update<'r> {
    objects: &'r Odb<'r>,
    repository: &'r Repository,
}

impl<'r> Update<'r> {
    fn preview(&self, [old, new]: [Oid; 2], left: &mut Left) -> UpdatePreview {
        let mut preview = UpdatePreview::default();
        let [before, after] = [old, new].map(|id| self.commit(id, &mut preview));
        let mut walk = |from: Option<&Commit<'_>>, without: Option<&Commit<'_>>| {
            self.commits(from.map(Commit::id), without.map(Commit::id), &mut left.commits)
        };
        let (gained, gains_more) = walk(after.as_ref(), before.as_ref());
        if before.is_some() && after.is_some() {
            let (lost, loses_more) = walk(before.as_ref(), after.as_ref());
            (preview.lost, preview.loses_more) = (lost.iter().map(shown).collect(), loses_more);
        } else if let Some(deleted) = before.as_ref().filter(|_| new.is_zero()) {
            (preview.lost, preview.loses_more) = (vec![shown(deleted)], true);
        }
        let mut output = Output::new(left.diff);
        let written = match (&before, &after) {
            (_, None) => Ok(()),
            (Some(before), Some(after)) => {
                before.tree().and_then(|before| self.write((Some(&before), &after.tree()?), &mut output))
            }
            (None, Some(_)) => self.write_each(&gained, &mut output),
        };
        if written.is_err() {
            preview
                .remarks
                .push("an object of the files that change is unknown, so the diff is not whole".to_owned());
        }
        preview.gained = gained.iter().map(shown).collect();
        preview.gains_more = gains_more;
        let result = output.into_result(GitResult::default());
        left.diff = left.diff.saturating_sub(result.output.len() as u64);
        // Remarks look like text of the agent. That a part is left out has to be said by the daemon.
        let is_other_object = !new.is_zero() && after.is_none() && preview.unknown.is_empty();
        preview.is_cut = result.truncated || written.is_err() || is_other_object;
        preview.diff = result.output;
        preview
    }

    /// Returns the commit that an id names, directly or by tags, which are remarked on. Notes an object that is unknown.
    fn commit(&self, id: Oid, preview: &mut UpdatePreview) -> Option<Commit<'r>> {
        if id.is_zero() {
            return None;
        }
        let mut at = id;
        for _ in 0..DEEPEST {
            let Some(object) = self.object(at, preview) else {
                preview.unknown.push(at.to_string());
                return None;
            };
            match object.into_tag() {
                Ok(tag) => {
                    let name = String::from_utf8_lossy(tag.name_bytes()).into_owned();
                    let message =
                        String::from_utf8_lossy(tag.message_bytes().unwrap_or_default()).into_owned();
                    preview.remarks.push(format!("tag {}: {}", cut(&name), cut(&message)));
                    at = tag.target_id();
                }
                Err(object) => {
                    let kind = object.kind().map_or("object", |kind| kind.str());
                    return object.into_commit().ok().or_else(|| {
                        preview.remarks.push(format!("{at} is a {kind} and no commit, so it is not shown"));
                        None
                    });
                }
            }
        }
        preview.remarks.push("a tag of too many tags is not followed".to_owned());
        None
    }

    /// Returns an object of a bounded size. A file is only looked at, and not loaded.
    fn object(&self, id: Oid, preview: &mut UpdatePreview) -> Option<Object<'r>> {
        let (size, kind) = self.objects.read_header(id).ok()?;
        if size > LARGEST {
            preview.remarks.push(format!("{id} is a {} of {size} bytes, which is not read", kind.str()));
            return None;
        }
        self.repository.find_object(id, None).ok()
    }

    /// Returns the commits that lead to one commit and not to another, from the first one on, and true if there are more.
    fn commits(&self, from: Option<Oid>, without: Option<Oid>, left: &mut usize) -> (Vec<Commit<'r>>, bool) {
        let Some(from) = from else { return (Vec::new(), false) };
        let mut seen: HashSet<Oid> = without.into_iter().collect();
        // If not all of these can be read, too many commits are shown, and none is hidden.
        let _ = without.and_then(|without| self.walk(without, &mut seen, left, |_| true));
        let (mut found, mut is_whole, mut is_shown) = (Vec::new(), true, true);
        if seen.insert(from) {
            let mut take = |id| {
                if let Ok(commit) = self.repository.find_commit(id) {
                    found.push(commit);
                } else {
                    // Its parents may be legible all the same, as those of a commit whose author is malformed. Servers take such commits.
                    is_shown = false;
                }
                found.len() <= MOST_COMMITS
            };
            take(from);
            is_whole = self.walk(from, &mut seen, left, take).is_some();
        }
        let has_more = found.len() > MOST_COMMITS || !is_whole || !is_shown;
        found.truncate(MOST_COMMITS);
        (found, has_more)
    }

    /// Visits the ancestors of a commit that were not seen, the nearest first, as long as `visit` returns true.
    ///
    /// `None` if not all of them can be read.
    fn walk(
        &self,
        from: Oid,
        seen: &mut HashSet<Oid>,
        left: &mut usize,
        mut visit: impl FnMut(Oid) -> bool,
    ) -> Option<()> {
        let (mut waiting, mut is_whole) = (VecDeque::from([from]), true);
        while let Some(id) = waiting.pop_front() {
            *left = left.checked_sub(1)?;
            let Some(parents) = ancestry::parents(self.objects, id) else {
                is_whole = false;
                continue;
            };
            for parent in parents {
                if seen.insert(parent) {
                    if !visit(parent) {
                        return Some(());
                    }
                    waiting.push_back(parent);
                }
            }
        }
        is_whole.then_some(())
    }

    /// Writes the changes between two trees: the files, and the diff.
    fn write(
        &self,
        (before, after): (Option<&Tree<'_>>, &Tree<'_>),
        output: &mut Output,
    ) -> Result<(), git2::Error> {
        let mut options = options();
        let diff = self.repository.diff_tree_to_tree(before, Some(after), Some(&mut options))?;
        let count = diff.deltas().len();
        if count > COUNTED {
            output.push_str(&format!(" {count} files changed\n"));
        } else {
            let stat = Formats::of([GitFormat::Stat].into_iter());
            let written = stat.and_then(|stat| stat.write(std::slice::from_ref(&diff), |_| true, output));
            written.map_err(|_| unreadable())?;
        }
        for (number, delta) in diff.deltas().enumerate() {
            if output.is_cut() {
                break;
            }
            formats::patch(&diff, number, &delta, output).map_err(|_| unreadable())?;
        }
        Ok(())
    }

    /// Writes the changes of each commit since its first parent.
    fn write_each(&self, commits: &[Commit<'_>], output: &mut Output) -> Result<(), git2::Error> {
        for commit in commits {
            if output.is_cut() {
                break;
            }
            output.push_str(&format!("commit {}\n", commit.id()));
            let before = if commit.parent_count() > 0 { Some(commit.parent(0)?.tree()?) } else { None };
            self.write((before.as_ref(), &commit.tree()?), output)?;
        }
        Ok(())
    }
}

fn options() -> DiffOptions {
    let mut options = compare::contents();
    options.max_size(LARGEST_FILE);
    options
}

fn unreadable() -> git2::Error {
    git2::Error::new(git2::ErrorCode::NotFound, ErrorClass::Odb, "an object is unknown")
}

/// Returns a commit as a reviewer sees it.
fn shown(commit: &Commit<'_>) -> PushedCommit {
    let author = commit.author();
    let text = |bytes: &[u8]| cut(&String::from_utf8_lossy(bytes));
    PushedCommit {
        id: commit.id().to_string(),
        author: format!("{} <{}>", text(author.name_bytes()), text(author.email_bytes())),
        date: history::date(author.when()),
        subject: text(commit.message_bytes()),
    }
}

/// Returns the beginning of the first line of a text.
fn cut(text: &str) -> String {
    text.trim_start().lines().next().unwrap_or_default().chars().take(SHOWN).collect()
}
