//! Finds out if a commit is an ancestor of another one, for a push.
//!
//! The repository is the agent's. Its `shallow`, `info/grafts`, `refs/replace` and commit graph can say anything, so none of them is
//! read: each step is a `parent` line of a commit whose text has the hash that it is named by. A positive answer cannot be forged.
//! All else that goes wrong is an unknown answer.

use std::collections::{HashSet, VecDeque};

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
fn lead_to(
    objects: &Odb<'_>,
    mut old: HashSet<Oid>,
    new: impl IntoIterator<Item = Oid>,
    left: &mut usize,
) -> Option<bool> {
    if old.is_empty() {
        return Some(true);
    }
    let mut seen = HashSet::new();
    let mut waiting: VecDeque<Oid> = new.into_iter().filter(|id| seen.insert(*id)).collect();
    let mut is_whole = true;
    while let Some(id) = waiting.pop_front() {
        if old.remove(&id) && old.is_empty() {
            return Some(true);
        }
        *left = left.checked_sub(1)?;
        let Some(parents) = parents(objects, id) else {
            // Another way may lead to the old commits.
            is_whole = false;
            continue;
        };
        waiting.extend(parents.into_iter().filter(|parent| seen.insert(*parent)));
    }
    is_whole.then_some(false)
}

/// Returns the parents of a commit. `None` if it is not there, is no commit, or has another hash than its name.
pub(super) fn parents(objects: &Odb<'_>, id: Oid) -> Option<Vec<Oid>> {
    let (size, kind) = objects.read_header(id).ok()?;
    if size > LARGEST || kind != ObjectType::Commit {
        return None;
    }
    let object = objects.read(id).ok()?;
    let is_named_so = Oid::hash_object(ObjectType::Commit, object.data()).is_ok_and(|hash| hash == id);
    if object.kind() != ObjectType::Commit || !is_named_so {
        return None;
    }
    parents_in(object.data())
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
    use super::*;

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
