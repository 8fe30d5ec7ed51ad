//! Implements `git diff`: the index against the work tree, or HEAD against the index.

use git2::{
    Delta, Diff, DiffDelta, DiffFindOptions, DiffOptions, ErrorCode, Index, IndexEntry, Repository, Tree,
};
use jail::{Jail, Mount, SandboxPath};
use operations::GitDiffFlag;

use super::compare::{contents, limit};
use super::conversion::Converted;
use super::error::GitError;
use super::formats::Formats;
use super::index::{self, Marked};
use super::output::Output;
use super::withheld::Withheld;
use super::{formats, gitlink, paths};

/// Priority of objects in memory: before those of the repository.
pub(super) const FIRST: i32 = 1_000;

/// Writes the diff in the formats that the flags ask for; without flags as patches.
pub(super) fn write(
    repository: &Repository,
    (jail, withheld): (&Jail, &Withheld<'_>),
    flags: &[GitDiffFlag],
    limit_to: &[SandboxPath],
    output: &mut Output,
) -> Result<(), GitError> {
    let chosen = flags.iter().filter_map(|flag| match flag {
        GitDiffFlag::Format(format) => Some(*format),
        GitDiffFlag::Cached | GitDiffFlag::NoColor => None,
    });
    let formats = Formats::of(chosen)?;
    let mut options = formats.options();
    let limit_to: Vec<&str> = limit_to.iter().map(paths::in_work_tree).collect::<Result<_, _>>()?;
    limit(&mut options, &limit_to);
    if flags.contains(&GitDiffFlag::Cached) {
        return formats.write(&[staged(repository, options)?], |delta| withheld.shows(delta), output);
    }
    let index = repository.index()?;
    let files = work_tree(repository, None, options)?;
    let converted = Converted::among(repository, &index, &files)?;
    let diffs = [files, converted.modes(repository)?, submodules(repository, jail, &limit_to)?];
    let is_wanted = is_wanted(&index);
    let shown =
        |delta: &DiffDelta<'_>| is_wanted(delta) && converted.is_known(delta) && withheld.shows(delta);
    formats.write(&diffs, shown, output)?;
    formats.unseen(converted.unseen.iter().filter(|(path, _)| withheld.shows_path(path)), output);
    Ok(())
}

/// Returns the diff that a commit would make: HEAD against the index, with renames.
///
/// It compares the tree that a commit would have, made in memory, so that no flag in the index hides a change. From here on the
/// repository and its index may only be read.
pub(super) fn staged(repository: &Repository, mut options: DiffOptions) -> Result<Diff<'_>, GitError> {
    let head = head_tree(repository)?;
    let mut index = repository.index()?;
    index::forget_announced(&mut index)?;
    repository.odb()?.add_new_mempack_backend(FIRST)?;
    let diff = match index.write_tree() {
        Ok(tree) => {
            let tree = repository.find_tree(tree)?;
            repository.diff_tree_to_tree(head.as_ref(), Some(&tree), Some(&mut options))?
        }
        // Conflicts or missing objects: no commit could be made.
        Err(_) => repository.diff_tree_to_index(head.as_ref(), Some(&index), Some(&mut options))?,
    };
    with_renames(diff)
}

/// Compares the index (`None`: the repository's) with the files. Leaves out submodules, which libgit2 would open.
pub(super) fn work_tree<'r>(
    repository: &'r Repository,
    index: Option<&Index>,
    mut options: DiffOptions,
) -> Result<Diff<'r>, GitError> {
    options.ignore_submodules(true);
    Ok(repository.diff_index_to_workdir(index, Some(&mut options))?)
}

/// Returns the submodules that are at another commit than the index has. It compares two lists of commits and opens none.
pub(super) fn submodules<'r>(
    repository: &'r Repository,
    jail: &Jail,
    limit_to: &[&str],
) -> Result<Diff<'r>, GitError> {
    let root = jail.root(Mount::Project).map_err(|refusal| GitError::Forbidden(refusal.to_string()))?;
    let (mut old, mut new) = (Index::new()?, Index::new()?);
    let submodules = Marked::of(&repository.index()?).submodules;
    for entry in submodules.iter().filter(|entry| paths::is_within(&entry.path, limit_to)) {
        if let Some(id) = gitlink::head(root, &entry.path) {
            old.add(entry)?;
            new.add(&IndexEntry { id, path: entry.path.clone(), ..*entry })?;
        }
    }
    Ok(repository.diff_index_to_index(&old, &new, Some(&mut contents()))?)
}

/// Selects the changes to show: a file that the work tree leaves out (`skip-worktree`) is not missing in it.
pub(super) fn is_wanted(index: &Index) -> impl Fn(&DiffDelta<'_>) -> bool {
    |delta| delta.status() != Delta::Deleted || !index::is_skipped(index, formats::new_path(delta))
}

/// Detects renames: a moved file counts as one change.
pub(super) fn with_renames(mut diff: Diff<'_>) -> Result<Diff<'_>, GitError> {
    diff.find_similar(Some(DiffFindOptions::new().renames(true)))?;
    Ok(diff)
}

/// Returns the tree of HEAD; `None` before the first commit.
pub(super) fn head_tree(repository: &Repository) -> Result<Option<Tree<'_>>, GitError> {
    match repository.head() {
        Ok(head) => Ok(Some(head.peel_to_tree()?)),
        Err(error) if error.code() == ErrorCode::UnbornBranch => Ok(None),
        Err(error) => Err(error.into()),
    }
}
