use std::path::Path;

use git2::Signature;
use tempfile::TempDir;

use super::super::testing::{SUBMODULE, tree_of};
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
        let tree = tree_of(&self.repository, files);
        let who = Signature::now("a", "a@example.org").unwrap();
        let parents: Vec<_> = parents.iter().map(|id| self.repository.find_commit(*id).unwrap()).collect();
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
    let refused = of(&[("a", "1\n"), ("sub", SUBMODULE)]).unwrap();
    assert!(refused.contains("submodule") && refused.contains("\nsub"), "{refused}");
    let refused = of(&[("a", "1\n"), ("d/big.bin", &pointer)]).unwrap();
    assert!(refused.contains("Git LFS") && refused.contains("\nd/big.bin"), "{refused}");
    let refused = of(&[("a", "1\n"), ("d/.gitattributes", "*.bin filter=lfs -text\n")]).unwrap();
    assert!(refused.contains("d/.gitattributes"), "{refused}");
    assert!(of(&[("a", "1\n"), (".gitattributes", "*.sh eol=lf\n")]).is_none());
    std::fs::write(world.repository.workdir().unwrap().join(".gitattributes"), "*.x filter=own\n").unwrap();
    let refused = of(&[("a", "1\n"), ("b.x", "1\n")]).unwrap();
    assert!(refused.contains("b.x (filter=own)"), "{refused}");
}
