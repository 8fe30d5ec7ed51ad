//! Finds out if a commit is an ancestor of another one, for a push.
//!
//! The repository is the agent's. Its `shallow`, `info/grafts`, `refs/replace` and commit graph can say anything, so none of them is
//! read: each step is a `parent` line of a commit whose text has the hash that it is named by. A positive answer cannot be forged.
//! All else that goes wrong is an unknown answer.

use std::collections::{BinaryHeap, HashSet};

use git2::{ObjectType, Odb, Oid};
use rustix::fs::lstat;

use crate::sys;

/// Places of the objects: of a work tree, and of a repository without one.
const OBJECTS: [&str; 2] = ["/source/.git/objects", "/source/objects"];
/// Most commits that are read, for all pairs together.
pub(super) const MOST_COMMITS: usize = 200_000;
/// Largest commit that is read, bytes.
pub(super) const LARGEST: usize = 1024 * 1024;

/// Returns for each pair if the first commit is an ancestor of the second one; `None` if that is not known.
pub(crate) fn ancestry(pairs: &[(String, String)]) -> Vec<Option<bool>> {
    let Some(objects) = objects() else { return vec![None; pairs.len()] };
    let mut left = MOST_COMMITS;
    pairs.iter().map(|(old, new)| is_ancestor(&objects, old, new, &mut left)).collect()
}

/// Opens the objects of the repository alone, without its configuration.
pub(super) fn objects() -> Option<Odb<'static>> {
    sys::restrict_libgit2().ok()?;
    let place = OBJECTS.into_iter().find(|place| lstat(*place).is_ok())?;
    let objects = Odb::new().ok()?;
    objects.add_disk_alternate(place).ok()?;
    Some(objects)
}

/// Returns true if the first commit is known to be an ancestor of the second one.
pub(super) fn is_known_ancestor(objects: &Odb<'_>, old: Oid, new: Oid) -> bool {
    are_known_ancestors(objects, HashSet::from([old]), [new])
}

/// Returns true if each of the first commits is known to be one of the others, or an ancestor of one.
pub(super) fn are_known_ancestors(
    objects: &Odb<'_>,
    old: HashSet<Oid>,
    new: impl IntoIterator<Item = Oid>,
) -> bool {
    let mut left = MOST_COMMITS;
    lead_to(objects, old, new, &mut left) == Some(true)
}

fn is_ancestor(objects: &Odb<'_>, old: &str, new: &str, left: &mut usize) -> Option<bool> {
    lead_to(objects, HashSet::from([Oid::from_str(old).ok()?]), [Oid::from_str(new).ok()?], left)
}

/// Returns true if parents lead from the new commits to each of the old ones.
///
/// Reads the newest commits first. A push mostly follows on recent ones, so a large repository does not use up `left` before they are found.
fn lead_to(
    objects: &Odb<'_>,
    mut old: HashSet<Oid>,
    new: impl IntoIterator<Item = Oid>,
    left: &mut usize,
) -> Option<bool> {
    if old.is_empty() {
        return Some(true);
    }
    let (mut seen, mut is_whole) = (HashSet::new(), true);
    // The parents of commits, by the times of these.
    let mut waiting: BinaryHeap<(i64, Vec<Oid>)> = BinaryHeap::from([(0, new.into_iter().collect())]);
    while let Some((_, ids)) = waiting.pop() {
        for id in ids {
            if !seen.insert(id) {
                continue;
            }
            if old.remove(&id) && old.is_empty() {
                return Some(true);
            }
            *left = left.checked_sub(1)?;
            match dated_parents(objects, id) {
                Some(dated) => waiting.push(dated),
                // Another way may lead to the old commits.
                None => is_whole = false,
            }
        }
    }
    is_whole.then_some(false)
}

/// Returns the parents of a commit. `None` if it is not there, is no commit, or has another hash than its name.
pub(super) fn parents(objects: &Odb<'_>, id: Oid) -> Option<Vec<Oid>> {
    dated_parents(objects, id).map(|(_, parents)| parents)
}

/// Returns the time of a commit, and its parents.
fn dated_parents(objects: &Odb<'_>, id: Oid) -> Option<(i64, Vec<Oid>)> {
    let (size, kind) = objects.read_header(id).ok()?;
    if size > LARGEST || kind != ObjectType::Commit {
        return None;
    }
    let object = objects.read(id).ok()?;
    let is_named_so = Oid::hash_object(ObjectType::Commit, object.data()).is_ok_and(|hash| hash == id);
    if object.kind() != ObjectType::Commit || !is_named_so {
        return None;
    }
    Some((time_in(object.data()), parents_in(object.data())?))
}

/// Reads the time at which a commit was made, seconds since 1970. Returns 0 if there is none: it only orders a walk.
fn time_in(text: &[u8]) -> i64 {
    let mut header = text.split(|byte| *byte == b'\n').take_while(|line| !line.is_empty());
    let committer = header.find_map(|line| line.strip_prefix(b"committer "));
    let time = committer.and_then(|line| line.rsplit(|byte| *byte == b' ').nth(1));
    time.and_then(|time| std::str::from_utf8(time).ok()?.parse().ok()).unwrap_or_default()
}

/// Reads the parents in the text of a commit: the lines after its tree.
fn parents_in(text: &[u8]) -> Option<Vec<Oid>> {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.next()?.strip_prefix(b"tree ")?;
    let mut parents = Vec::new();
    for line in lines {
        let Some(parent) = line.strip_prefix(b"parent ") else { break };
        let parent = std::str::from_utf8(parent).ok().filter(|parent| parent.len() == 40)?;
        parents.push(Oid::from_str(parent).ok()?);
    }
    Some(parents)
}

#[cfg(test)]
mod tests {
    use git2::{Repository, Signature, Time};

    use super::*;

    #[test]
    fn recent_ancestors_are_found_before_all_old_commits_are_read() {
        let place = tempfile::tempdir().unwrap();
        let repository = Repository::init(place.path()).unwrap();
        let tree = repository.treebuilder(None).unwrap().write().unwrap();
        let tree = repository.find_tree(tree).unwrap();
        let line = |times: std::ops::Range<i64>| {
            let mut ids = Vec::new();
            for time in times {
                let who = Signature::new("a", "a@example.org", &Time::new(time, 0)).unwrap();
                let parent = ids.last().map(|id| repository.find_commit(*id).unwrap());
                let parents: Vec<_> = parent.iter().collect();
                ids.push(repository.commit(None, &who, &who, "x", &tree, &parents).unwrap());
            }
            ids
        };
        let (old, recent) = (line(1_000..1_050), line(9_000..9_010));
        let objects = repository.odb().unwrap();
        let heads = || [old[49], recent[9]];
        let mut left = 8;
        assert_eq!(lead_to(&objects, HashSet::from([recent[2]]), heads(), &mut left), Some(true));
        assert_eq!(left, 0, "a walk reads the two heads, and then the newest commits alone");
        let mut left = 8;
        assert_eq!(lead_to(&objects, HashSet::from([old[0]]), heads(), &mut left), None);
        assert!(are_known_ancestors(&objects, HashSet::from([old[0], recent[0]]), heads()));
        assert!(!are_known_ancestors(&objects, HashSet::from([old[0], recent[0]]), [recent[9]]));
    }

    #[test]
    fn the_time_is_that_of_the_header() {
        let tree = "1".repeat(40);
        for (text, time) in [
            (
                format!("tree {tree}\nauthor a <a> 5 +0000\ncommitter b c <b> 1700000000 -0130\n\nx"),
                1_700_000_000,
            ),
            (format!("tree {tree}\ncommitter b <b> -7 +0000\n"), -7),
            (format!("tree {tree}\ncommitter b\n"), 0),
            (format!("tree {tree}\nauthor a <a> 5 +0000\n\ncommitter b <b> 6 +0000\n"), 0),
            (String::new(), 0),
        ] {
            assert_eq!(time_in(text.as_bytes()), time, "{text}");
        }
    }

    #[test]
    fn only_the_lines_after_the_tree_name_parents() {
        let (one, two) = ("1".repeat(40), "2".repeat(40));
        for (text, count) in [
            (format!("tree {one}\nauthor a\n\nparent {two}\n"), Some(0)),
            (format!("tree {one}\nparent {one}\nparent {two}\nauthor a\n"), Some(2)),
            (format!("tree {one}\nauthor a\nparent {two}\n\nx"), Some(0)),
            (format!("parent {one}\ntree {two}\n"), None),
            (format!("tree {one}\nparent {}\n", &two[1..]), None),
            (format!("tree {one}\nparent {}x\n", &two[1..]), None),
            (String::new(), None),
        ] {
            assert_eq!(parents_in(text.as_bytes()).map(|parents| parents.len()), count, "{text}");
        }
    }
}
