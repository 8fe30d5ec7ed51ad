//! What `git add` would stage, for whoever consents to it: a line for each path, as `git add --dry-run` has them, and the
//! difference that the index would have afterwards from what it is now, as `git diff --cached` would then show it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use git2::Repository;

use crate::git::beneath::Beneath;
use crate::git::contents::Contents;
use crate::git::diff;
use crate::git::difference::{Difference, EXECUTABLE, LINK, PLAIN, Version};
use crate::git::error::GitError;
use crate::git::index::Index;
use crate::git::output::Output;
use crate::git::quote::{Spaces, quoted};
use crate::git::repository::WORKSPACE;
use crate::git::worktree::{self, Survey, Wanted};

/// Writes what would become of `changes`: paths, and whether they are still there. They were found beneath `wanted`.
pub(super) fn write(
    repository: &Repository,
    wanted: &[&str],
    changes: &[(String, bool)],
    output: &mut Output,
) -> Result<(), GitError> {
    for (path, there) in changes {
        let verb = if *there { "add" } else { "remove" };
        output.push_str(&format!("{verb} '{}'\n", quoted(path.as_bytes(), Spaces::Plain)));
    }
    if changes.is_empty() {
        return Ok(());
    }
    output.push_str("\n");
    let workspace = Beneath::workspace()?;
    let index = Index::read(&workspace)?;
    let odb = repository.odb()?;
    let contents = Contents::new(repository, &odb, &index)?;
    // Removals come first: they hold no longer for what is added.
    let is_gone =
        |(path, there): &&(String, bool)| !there && path.rsplit('/').next() == Some(".gitattributes");
    for (path, _) in changes.iter().filter(is_gone) {
        contents.without_attributes(path)?;
    }
    let differences = differences(&contents, &workspace, &index, wanted, changes)?;
    diff::write_patches(&contents, &differences, output)
}

fn differences(
    contents: &Contents<'_>,
    workspace: &Beneath,
    index: &Index,
    wanted: &[&str],
    changes: &[(String, bool)],
) -> Result<Vec<Difference>, GitError> {
    let touched: BTreeMap<&[u8], bool> =
        changes.iter().map(|(path, there)| (path.as_bytes(), *there)).collect();
    // The work tree itself among the paths means all of it, as does no path at all.
    let paths = if wanted.contains(&"") { &[][..] } else { wanted };
    let found = worktree::differences(
        contents,
        workspace,
        index,
        Wanted { paths, untracked: false },
        Survey::none(),
    )?;
    let intended: BTreeSet<&[u8]> =
        index.entries().iter().filter(|entry| entry.is_intended).map(|entry| index.name(entry)).collect();
    let staged = |difference: Difference| {
        // The sides of a conflict are not staged; what is there in place of ours is.
        let (old, new) = difference.versions().filter(|_| touched.contains_key(&*difference.path))?;
        // Of what `git add -N` has announced the index has no content so far.
        let old = if intended.contains(&*difference.path) { Version::NONE } else { old };
        (!old.is_none() || !new.is_none()).then(|| Difference::change(&difference.path, old, new))
    };
    let mut differences: Vec<Difference> = found.differences.into_iter().filter_map(staged).collect();
    let known: BTreeSet<&[u8]> = index.entries().iter().map(|entry| index.name(entry)).collect();
    let keeps_modes = contents.repository.config()?.get_bool("core.filemode").unwrap_or(true);
    for (path, _) in touched.iter().filter(|(path, there)| **there && !known.contains(*path)) {
        if let Some(mode) = mode(path, keeps_modes) {
            differences.push(Difference::change(path, Version::NONE, Version::found(mode, None)));
        }
    }
    differences.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(differences)
}

/// The mode with which a file would be added.
fn mode(path: &[u8], keeps_modes: bool) -> Option<u32> {
    use std::os::unix::ffi::OsStrExt as _;
    let place = Path::new(WORKSPACE).join(std::ffi::OsStr::from_bytes(path));
    let metadata = fs::symlink_metadata(place).ok()?;
    Some(match () {
        () if metadata.is_symlink() => LINK,
        () if keeps_modes && metadata.permissions().mode() & 0o100 != 0 => EXECUTABLE,
        () => PLAIN,
    })
}
