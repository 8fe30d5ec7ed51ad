//! What is staged: a tree, HEAD's usually, against the index.
//!
//! Directories that the index knows to be those of the tree are passed over, as in git: a repository of any size costs
//! what has changed in it.

use std::collections::HashMap;
use std::ops::Range;

use git2::{ObjectType, Oid, Repository, Tree};

use super::difference::{Difference, Sides, Version, What, canonical};
use super::error::GitError;
use super::index::{CachedTree, Child, Index};

/// Bytes of a path, at most: trees can be nested without an end.
const LONGEST: usize = 4096;

/// Everything that differs, in the order of the paths.
pub(super) fn differences(
    repository: &Repository,
    tree: Option<&Tree<'_>>,
    index: &Index,
) -> Result<Vec<Difference>, GitError> {
    let mut comparison = Comparison { repository, index, found: Vec::new() };
    let root = tree.map(Tree::id);
    comparison.directory(root, index.tree.as_ref(), &mut Vec::new(), 0..index.entries().len())?;
    let mut found = comparison.found;
    found.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(found)
}

struct Comparison<'c> {
    repository: &'c Repository,
    index: &'c Index,
    found: Vec<Difference>,
}

/// An entry of a tree.
#[derive(Clone, Copy)]
enum Item {
    Tree(Oid),
    File(Version),
}

impl Comparison<'_> {
    /// The directory `path`, which is empty or ends with a slash: the tree `tree` against the entries in `range`.
    fn directory(
        &mut self,
        tree: Option<Oid>,
        cached: Option<&CachedTree>,
        path: &mut Vec<u8>,
        range: Range<usize>,
    ) -> Result<(), GitError> {
        let known = cached.and_then(|cached| cached.known);
        if tree.is_some() && known == tree.map(|tree| (range.len(), tree)) {
            return Ok(());
        }
        let mut items = match tree {
            Some(tree) => self.items(tree)?,
            None => HashMap::new(),
        };
        let index = self.index;
        let skip = path.len();
        for child in index.children(range, skip) {
            match child {
                Child::File { name, entries } => {
                    let item = items.remove(name);
                    path.extend_from_slice(name);
                    self.file(item, path, entries)?;
                }
                Child::Directory { name, entries } => {
                    let item = items.remove(name);
                    path.extend_from_slice(name);
                    let tree = match item {
                        Some(Item::Tree(tree)) => Some(tree),
                        // Where the tree has a file, the index has a directory.
                        Some(item) => {
                            self.gone(item, path)?;
                            None
                        }
                        None => None,
                    };
                    path.push(b'/');
                    self.directory(tree, cached.and_then(|cached| cached.child(name)), path, entries)?;
                }
            }
            path.truncate(skip);
        }
        for (name, item) in items {
            path.extend_from_slice(&name);
            self.gone(item, path)?;
            path.truncate(skip);
        }
        Ok(())
    }

    fn file(&mut self, item: Option<Item>, path: &mut Vec<u8>, range: Range<usize>) -> Result<(), GitError> {
        let old = match item {
            Some(Item::File(version)) => version,
            Some(directory) => {
                self.gone(directory, path)?;
                Version::NONE
            }
            None => Version::NONE,
        };
        let Some(entries) = self.index.entries().get(range) else { return Ok(()) };
        let what = match entries {
            [entry] if entry.stage == 0 => {
                // What is only announced is not there yet.
                let new = if entry.is_intended { Version::NONE } else { Version::new(entry.mode, entry.id) };
                if old.equals(new) {
                    return Ok(());
                }
                What::Change(old, new)
            }
            sides => What::Unmerged(Sides::of(sides, Version::NONE)),
        };
        self.found.push(Difference { path: path.clone(), what });
        Ok(())
    }

    /// What the tree has and the index has not.
    fn gone(&mut self, item: Item, path: &mut Vec<u8>) -> Result<(), GitError> {
        match item {
            Item::File(version) => self.found.push(Difference::change(path, version, Version::NONE)),
            Item::Tree(tree) => {
                let length = path.len();
                path.push(b'/');
                self.directory(Some(tree), None, path, 0..0)?;
                path.truncate(length);
            }
        }
        if path.len() > LONGEST {
            return Err(GitError::Library("the repository has a path that is too long".to_owned()));
        }
        Ok(())
    }

    fn items(&self, tree: Oid) -> Result<HashMap<Vec<u8>, Item>, GitError> {
        let tree = self.repository.find_tree(tree)?;
        let item = |entry: git2::TreeEntry<'_>| {
            let item = if entry.kind() == Some(ObjectType::Tree) {
                Item::Tree(entry.id())
            } else {
                Item::File(Version::new(canonical(entry.filemode_raw().cast_unsigned()), entry.id()))
            };
            (entry.name_bytes().to_vec(), item)
        };
        Ok(tree.iter().map(item).collect())
    }
}
