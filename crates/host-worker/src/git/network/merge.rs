//! Plans a pull: the tree and the commit that the current branch gets. It changes nothing but objects.

use git2::{Commit, Diff, ErrorCode, MergeOptions, Oid, Repository, Tree};
use operations::{Binder, Bound, GitPullMode};

use super::super::error::{GitError, shown};
use super::super::quote::quoted;
use super::super::{commit, compare, diff, repository};
use super::lfs::{demand_plain, excerpt};

/// Most files that a merge compares with each other to find renames.
const RENAMES: u32 = 1_000;

/// A pull that can be made, derived from one reading of HEAD.
pub(super) struct Planned<'r> {
    /// The reference that moves: the branch that HEAD names, or a detached HEAD itself.
    pub(super) reference: String,
    /// `None` before the first commit.
    pub(super) old: Option<Commit<'r>>,
    /// The commit of the remote's branch.
    pub(super) theirs: Commit<'r>,
    pub(super) step: Step<'r>,
}

/// The way in which the branch gets the commits.
pub(super) enum Step<'r> {
    /// It has them.
    None,
    FastForward,
    /// By a commit with this tree.
    Merge(Tree<'r>),
}

impl<'r> Planned<'r> {
    pub(super) fn of(repository: &'r Repository, mode: GitPullMode, theirs: Oid) -> Result<Self, GitError> {
        commit::check(repository)?;
        let (reference, old) = commit::head(repository)?;
        if repository::is_checked_out_elsewhere(&reference) {
            return Err(GitError::CheckedOut(shown(&reference)));
        }
        let theirs = repository.find_object(theirs, None)?.peel_to_commit()?;
        let step = match &old {
            None => Step::FastForward,
            Some(ours) => step(repository, mode, ours, &theirs)?,
        };
        let planned = Self { reference, old, theirs, step };
        demand_plain(repository, &planned.diff(repository)?)?;
        Ok(planned)
    }

    /// Returns the tree that the files have afterwards.
    pub(super) fn tree(&self) -> Result<Tree<'r>, GitError> {
        match (&self.step, &self.old) {
            (Step::Merge(tree), _) => Ok(tree.clone()),
            (Step::None, Some(old)) => Ok(old.tree()?),
            _ => Ok(self.theirs.tree()?),
        }
    }

    /// Returns the changes of the files, without renames.
    pub(super) fn diff(&self, repository: &'r Repository) -> Result<Diff<'r>, GitError> {
        let before = self.old.as_ref().map(Commit::tree).transpose()?;
        let options = Some(&mut compare::changes());
        Ok(repository.diff_tree_to_tree(before.as_ref(), Some(&self.tree()?), options)?)
    }

    /// Returns the changes for people.
    pub(super) fn shown_diff(&self, repository: &'r Repository) -> Result<Diff<'r>, GitError> {
        let before = self.old.as_ref().map(Commit::tree).transpose()?;
        let options = Some(&mut compare::contents());
        diff::with_renames(repository.diff_tree_to_tree(before.as_ref(), Some(&self.tree()?), options)?)
    }

    pub(super) fn bound(&self, url: &str) -> Result<Bound, GitError> {
        let mut binder = Binder::new("git.pull");
        binder.bytes(url.as_bytes());
        binder.bytes(self.reference.as_bytes());
        binder.bytes(self.old.as_ref().map_or(Oid::ZERO_SHA1, Commit::id).as_bytes());
        binder.bytes(self.theirs.id().as_bytes());
        binder.bytes(self.tree()?.id().as_bytes());
        Ok(binder.finish())
    }
}

fn step<'r>(
    repository: &'r Repository,
    mode: GitPullMode,
    ours: &Commit<'r>,
    theirs: &Commit<'r>,
) -> Result<Step<'r>, GitError> {
    let base = match repository.merge_base(ours.id(), theirs.id()) {
        Ok(base) => base,
        Err(error) if error.code() == ErrorCode::NotFound => return Err(GitError::Unrelated),
        Err(error) => return Err(error.into()),
    };
    if base == theirs.id() {
        return Ok(Step::None);
    }
    if base == ours.id() {
        return Ok(Step::FastForward);
    }
    if mode == GitPullMode::FastForward {
        let (ahead, behind) = repository.graph_ahead_behind(ours.id(), theirs.id())?;
        return Err(GitError::Diverged { ahead, behind });
    }
    let mut options = MergeOptions::new();
    options.find_renames(true).target_limit(RENAMES);
    let mut merged = repository.merge_commits(ours, theirs, Some(&options))?;
    if merged.has_conflicts() {
        return Err(GitError::MergeConflicts(excerpt(&conflicts(&merged)?)));
    }
    let tree = merged.write_tree_to(repository)?;
    Ok(Step::Merge(repository.find_tree(tree)?))
}

/// Returns the paths with conflicts, each once.
fn conflicts(merged: &git2::Index) -> Result<Vec<String>, GitError> {
    let mut paths = Vec::new();
    for conflict in merged.conflicts()? {
        let conflict = conflict?;
        if let Some(side) = conflict.our.or(conflict.their).or(conflict.ancestor) {
            paths.push(quoted(&side.path));
        }
    }
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use git2::Signature;
    use tempfile::TempDir;

    use super::*;

    /// A repository whose commits are made without a work tree.
    struct World {
        _place: TempDir,
        repository: Repository,
    }

    impl World {
        fn new() -> Self {
            let place = tempfile::tempdir().unwrap();
            let repository = Repository::init(place.path()).unwrap();
            repository.set_head("refs/heads/main").unwrap();
            Self { _place: place, repository }
        }

        fn commit(&self, parents: &[Oid], files: &[(&str, &str)]) -> Oid {
            let mut index = git2::Index::new().unwrap();
            for (path, content) in files {
                let id = self.repository.blob(content.as_bytes()).unwrap();
                let zero = git2::IndexTime::new(0, 0);
                let (id, mode) = match *content {
                    "submodule" => (Oid::from_str(&"5".repeat(40)).unwrap(), 0o160_000),
                    _ => (id, 0o100_644),
                };
                let path = path.as_bytes().to_vec();
                index
                    .add(&git2::IndexEntry {
                        ctime: zero,
                        mtime: zero,
                        dev: 0,
                        ino: 0,
                        mode,
                        uid: 0,
                        gid: 0,
                        file_size: 0,
                        id,
                        flags: 0,
                        flags_extended: 0,
                        path,
                    })
                    .unwrap();
            }
            let tree = index.write_tree_to(&self.repository).unwrap();
            let tree = self.repository.find_tree(tree).unwrap();
            let who = Signature::now("a", "a@example.org").unwrap();
            let parents: Vec<_> =
                parents.iter().map(|id| self.repository.find_commit(*id).unwrap()).collect();
            let parents: Vec<_> = parents.iter().collect();
            self.repository.commit(None, &who, &who, "m", &tree, &parents).unwrap()
        }

        fn at(&self, id: Oid) {
            self.repository.reference("refs/heads/main", id, true, "test").unwrap();
        }

        fn plan(&self, mode: GitPullMode, theirs: Oid) -> Result<Planned<'_>, GitError> {
            Planned::of(&self.repository, mode, theirs)
        }
    }

    use GitPullMode::{FastForward, Merge};

    #[test]
    fn a_branch_without_commits_of_its_own_is_moved() {
        let world = World::new();
        let first = world.commit(&[], &[("a", "1\n")]);
        let second = world.commit(&[first], &[("a", "2\n"), ("b", "1\n")]);
        let unborn = world.plan(FastForward, first).unwrap();
        assert!(unborn.old.is_none() && matches!(unborn.step, Step::FastForward));
        world.at(first);
        for mode in [FastForward, Merge] {
            let planned = world.plan(mode, second).unwrap();
            assert!(matches!(planned.step, Step::FastForward));
            assert_eq!(planned.reference, "refs/heads/main");
            assert_eq!(planned.diff(&world.repository).unwrap().deltas().len(), 2);
        }
        world.at(second);
        let planned = world.plan(FastForward, first).unwrap();
        assert!(matches!(planned.step, Step::None));
        assert_eq!(planned.diff(&world.repository).unwrap().deltas().len(), 0);
    }

    #[test]
    fn commits_on_both_sides_need_a_merge_and_conflicts_are_named() {
        let world = World::new();
        let base = world.commit(&[], &[("a", "1\n"), ("b", "1\n")]);
        let ours = world.commit(&[base], &[("a", "ours\n"), ("b", "1\n")]);
        let theirs = world.commit(&[base], &[("a", "1\n"), ("b", "theirs\n")]);
        world.at(ours);
        let refused = world.plan(FastForward, theirs).err().unwrap();
        assert!(matches!(refused, GitError::Diverged { ahead: 1, behind: 1 }), "{refused:?}");
        let planned = world.plan(Merge, theirs).unwrap();
        let tree = planned.tree().unwrap();
        let content = |path: &str| {
            let id = tree.get_path(Path::new(path)).unwrap().id();
            String::from_utf8(world.repository.find_blob(id).unwrap().content().to_vec()).unwrap()
        };
        assert_eq!((content("a"), content("b")), ("ours\n".to_owned(), "theirs\n".to_owned()));

        let clash = world.commit(&[base], &[("a", "theirs\n"), ("b", "1\n")]);
        let Err(GitError::MergeConflicts(paths)) = world.plan(Merge, clash) else { panic!("no conflict") };
        assert_eq!(paths, "a");
        let gone = world.commit(&[base], &[("b", "1\n")]);
        assert!(matches!(world.plan(Merge, gone), Err(GitError::MergeConflicts(_))));
        let other = world.commit(&[], &[("z", "1\n")]);
        assert!(matches!(world.plan(Merge, other), Err(GitError::Unrelated)));
    }

    #[test]
    fn consent_is_bound_to_both_commits_and_the_branch() {
        let world = World::new();
        let first = world.commit(&[], &[("a", "1\n")]);
        let second = world.commit(&[first], &[("a", "2\n")]);
        let third = world.commit(&[second], &[("a", "1\n")]);
        world.at(first);
        let bound = |url: &str, id: Oid| world.plan(FastForward, id).unwrap().bound(url).unwrap().digest;
        let one = bound("https://git.example.org/a", second);
        assert_eq!(one, bound("https://git.example.org/a", second));
        assert_ne!(one, bound("https://git.example.org/b", second));
        assert_ne!(one, bound("https://git.example.org/a", third));
        world.at(second);
        assert_ne!(bound("https://git.example.org/a", third), one);
    }

    #[test]
    fn submodules_files_of_lfs_and_filters_are_refused_by_name() {
        let world = World::new();
        let first = world.commit(&[], &[("a", "1\n")]);
        world.at(first);
        let of = |files: &[(&str, &str)]| {
            world.plan(FastForward, world.commit(&[first], files)).err().map(|error| error.to_string())
        };
        let pointer = format!(
            "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 5\n",
            "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
        );
        assert!(of(&[("a", "1\n"), ("b", "1\n")]).is_none());
        let refused = of(&[("a", "1\n"), ("sub", "submodule")]).unwrap();
        assert!(refused.contains("submodule") && refused.contains("\nsub"), "{refused}");
        let refused = of(&[("a", "1\n"), ("d/big.bin", &pointer)]).unwrap();
        assert!(refused.contains("Git LFS") && refused.contains("\nd/big.bin"), "{refused}");
        let refused = of(&[("a", "1\n"), ("d/.gitattributes", "*.bin filter=lfs -text\n")]).unwrap();
        assert!(refused.contains("d/.gitattributes"), "{refused}");
        assert!(of(&[("a", "1\n"), (".gitattributes", "*.sh eol=lf\n")]).is_none());
        std::fs::write(world.repository.workdir().unwrap().join(".gitattributes"), "*.x filter=own\n")
            .unwrap();
        let refused = of(&[("a", "1\n"), ("b.x", "1\n")]).unwrap();
        assert!(refused.contains("b.x (filter=own)"), "{refused}");
    }
}
