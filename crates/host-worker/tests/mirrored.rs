//! Cloning the mirror of a repository on a server into a run's empty workspace.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use host_launch::{MirrorError, MirroredClone, TreeBounds};
use support::{Scratch, directory, git_in, launcher, run};

const TIME: Duration = Duration::from_secs(20);
const WIDE: TreeBounds = TreeBounds { bytes: 1 << 30, files: 10_000 };
const URL: &str = "https://git.example.org/org/app";
/// Owner of the mirror, who is not that of the clone.
const KEEPER: u32 = 4321;

/// A mirror with the branches `trunk` and `topic`, the tags `v1` and `light`, and four commits in a line.
struct Mirror(Scratch);

impl Mirror {
    fn new() -> Self {
        let mirror = Self(Scratch::new());
        let origin = mirror.0.dir.path().join("origin");
        fs::create_dir(&origin).unwrap();
        let git = |args: &[&str]| run(&mut git_in(&origin, args));
        git(&["init", "-q", "-b", "trunk"]);
        let mut random = vec![0; 200 << 10];
        fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
        fs::write(origin.join("big"), random).unwrap();
        git(&["add", "big"]);
        for content in ["one\n", "two\n", "three\n"] {
            fs::write(origin.join("a"), content).unwrap();
            git(&["add", "a"]);
            git(&["commit", "-q", "-m", content]);
        }
        git(&["tag", "-m", "v1", "v1", "HEAD~1"]);
        git(&["tag", "light", "HEAD~2"]);
        git(&["checkout", "-q", "-b", "topic"]);
        fs::write(origin.join("b"), "four\n").unwrap();
        git(&["add", "b"]);
        git(&["commit", "-q", "-m", "four"]);
        git(&["checkout", "-q", "trunk"]);
        fs::remove_dir_all(mirror.path()).unwrap();
        run(&mut git_in(
            mirror.0.dir.path(),
            &["clone", "-q", "--mirror", "--no-local", "origin", "outside"],
        ));
        mirror.git(&["config", "--remove-section", "remote.origin"]);
        mirror.own();
        mirror
    }

    fn path(&self) -> PathBuf {
        self.0.outside()
    }

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8(run(&mut git_in(&self.path(), args))).unwrap()
    }

    fn own(&self) {
        run(Command::new("chown").arg("-R").arg(format!("{KEEPER}:{KEEPER}")).arg(self.path()));
    }

    fn clone_at(&self, revision: &str, depth: u32, most: TreeBounds) -> Result<String, MirrorError> {
        let (mirror, workspace) = (directory(&self.path()), directory(&self.0.workspace()));
        let clone = MirroredClone {
            mirror: mirror.as_fd(),
            workspace: workspace.as_fd(),
            url: URL,
            revision,
            depth,
            most,
            owner: (self.0.uid, self.0.uid),
        };
        launcher().clone_mirror(clone, TIME)
    }

    fn clone(&self, revision: &str) -> Result<String, MirrorError> {
        self.clone_at(revision, 0, WIDE)
    }

    fn cloned(&self, args: &[&str]) -> String {
        self.0.git(args)
    }

    fn objects(&self) -> usize {
        self.cloned(&["cat-file", "--batch-all-objects", "--batch-check"]).lines().count()
    }
}

#[test]
fn a_clone_has_its_server_as_origin_and_what_its_references_reach() {
    for (revision, branch, content) in
        [("", "trunk", "three\n"), ("topic", "topic", "three\n"), ("v1", "", "two\n"), ("light", "", "one\n")]
    {
        let mirror = Mirror::new();
        let commit = mirror.clone(revision).unwrap();
        assert_eq!(mirror.cloned(&["rev-parse", "HEAD"]).trim(), commit, "{revision}");
        assert_eq!(mirror.cloned(&["branch", "--show-current"]).trim(), branch);
        assert_eq!(fs::read_to_string(mirror.0.workspace().join("a")).unwrap(), content);
        assert_eq!(mirror.cloned(&["status", "--porcelain"]), "");
        assert_eq!(mirror.cloned(&["remote", "get-url", "origin"]).trim(), URL);
        assert_eq!(mirror.cloned(&["tag"]), "light\nv1\n");
        let tracked = mirror.cloned(&["for-each-ref", "--format=%(refname)", "refs/remotes"]);
        assert_eq!(
            tracked,
            "refs/remotes/origin/HEAD\nrefs/remotes/origin/topic\nrefs/remotes/origin/trunk\n"
        );
        if !branch.is_empty() {
            let upstream = mirror.cloned(&["rev-parse", "--abbrev-ref", "@{upstream}"]);
            assert_eq!(upstream.trim(), format!("origin/{branch}"));
        }
        mirror.cloned(&["fsck", "--strict"]);
        let host = mirror.0.dir.path().to_str().unwrap();
        for (path, _, uid, content) in support::fingerprint(&mirror.0.workspace()) {
            assert_eq!(uid, mirror.0.uid, "{path:?}");
            assert!(!String::from_utf8_lossy(&content).contains(host), "a host path in {path:?}");
        }
    }
}

#[test]
fn objects_that_were_fetched_for_others_are_not_in_a_clone() {
    let mirror = Mirror::new();
    let all = mirror.git(&["rev-parse", "topic", "topic^{tree}", "topic:b"]);
    let kept = mirror.git(&["rev-parse", "trunk"]);
    // The server advertises less to this caller.
    mirror.git(&["update-ref", "-d", "refs/heads/topic"]);
    mirror.own();
    mirror.clone("").unwrap();
    let known = mirror.cloned(&["cat-file", "--batch-all-objects", "--batch-check"]);
    assert!(known.contains(kept.trim()));
    for hidden in all.lines() {
        assert!(!known.contains(hidden), "{hidden}");
    }
    mirror.cloned(&["fsck", "--strict"]);
}

#[test]
fn a_commit_is_cloned_only_if_a_reference_reaches_it() {
    let mirror = Mirror::new();
    // Each attempt needs an empty workspace, which a refused one leaves.
    let (old, topic) = (mirror.git(&["rev-parse", "trunk~2"]), mirror.git(&["rev-parse", "topic"]));
    mirror.git(&["update-ref", "-d", "refs/heads/topic"]);
    mirror.own();
    for hidden in [topic.trim(), &"1".repeat(40)] {
        let why = mirror.clone(hidden).unwrap_err().to_string();
        assert!(why.contains("is not in the history of a branch or tag of the server"), "{why}");
    }
    for none in ["none", "trunk~1", "refs/heads/trunk", "..", "-x", &old[..12]] {
        let why = mirror.clone(none).unwrap_err();
        assert!(
            matches!(&why, MirrorError::Refused(why) if why.contains("no branch, tag or commit")),
            "{why}"
        );
    }
    assert_eq!(mirror.clone(old.trim()).unwrap(), old.trim());
    assert_eq!(mirror.cloned(&["branch", "--show-current"]), "");
}

#[test]
fn a_part_of_the_history_ends_where_it_was_asked_to() {
    for (revision, depth, commits, fetched) in [
        ("trunk", 1, 1, "+refs/heads/trunk:refs/remotes/origin/trunk"),
        ("topic", 2, 2, "+refs/heads/topic:refs/remotes/origin/topic"),
        ("topic", 100, 4, "+refs/heads/topic:refs/remotes/origin/topic"),
        ("v1", 1, 1, "+refs/tags/v1:refs/tags/v1"),
    ] {
        let mirror = Mirror::new();
        mirror.clone_at(revision, depth, WIDE).unwrap();
        assert_eq!(mirror.cloned(&["rev-list", "--count", "HEAD"]).trim(), commits.to_string(), "{revision}");
        assert_eq!(mirror.cloned(&["config", "remote.origin.fetch"]).trim(), fetched);
        let is_shallow = mirror.cloned(&["rev-parse", "--is-shallow-repository"]);
        assert_eq!(is_shallow.trim() == "true", commits < 4);
        assert_eq!(mirror.cloned(&["status", "--porcelain"]), "");
        mirror.cloned(&["fsck", "--strict"]);
    }
    let mirror = Mirror::new();
    mirror.clone_at("trunk", 1, WIDE).unwrap();
    assert_eq!(mirror.objects(), 4, "a commit, its tree and its two files");
}

#[test]
fn a_mirror_that_lacks_an_object_is_broken_and_one_without_commits_is_refused() {
    let mirror = Mirror::new();
    let blob = mirror.git(&["rev-parse", "trunk:a"]);
    let packs = mirror.path().join("objects/pack");
    let loose = mirror.0.dir.path().join("loose");
    fs::create_dir(&loose).unwrap();
    for entry in fs::read_dir(&packs).unwrap().map(|entry| entry.unwrap()) {
        fs::rename(entry.path(), loose.join(entry.file_name())).unwrap();
    }
    for pack in fs::read_dir(&loose).unwrap().map(|entry| entry.unwrap().path()) {
        if pack.extension().is_some_and(|end| end == "pack") {
            let mut unpack = git_in(&mirror.path(), &["unpack-objects", "-q"]);
            run(unpack.stdin(fs::File::open(&pack).unwrap()));
        }
    }
    let blob = blob.trim();
    fs::remove_file(mirror.path().join("objects").join(&blob[..2]).join(&blob[2..])).unwrap();
    mirror.own();
    assert!(matches!(mirror.clone("").unwrap_err(), MirrorError::Broken(_)));

    let empty = Mirror::new();
    for name in ["heads/trunk", "heads/topic", "tags/v1", "tags/light"] {
        empty.git(&["update-ref", "-d", &format!("refs/{name}")]);
    }
    empty.own();
    let why = empty.clone("").unwrap_err().to_string();
    assert_eq!(why, "the source has no commits");
}

#[test]
fn a_clone_that_exceeds_its_bounds_is_refused() {
    let mirror = Mirror::new();
    for most in [TreeBounds { bytes: 100 << 10, ..WIDE }, TreeBounds { files: 5, ..WIDE }] {
        let why = mirror.clone_at("", 0, most).unwrap_err();
        assert!(matches!(why, MirrorError::Excess(_)), "{why}");
        fs::remove_dir_all(mirror.0.workspace()).unwrap();
        fs::create_dir(mirror.0.workspace()).unwrap();
        mirror.0.own();
    }
    // A part of the mirror is written as a new pack, which no file bounds by its length before.
    let why = mirror.clone_at("", 1, TreeBounds { bytes: 100 << 10, ..WIDE }).unwrap_err();
    assert!(matches!(why, MirrorError::Excess(_)), "{why}");
}
