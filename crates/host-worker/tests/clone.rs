//! Cloning a local repository into a run's empty workspace.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use host_launch::{CloneError, CloneSpec, TreeBounds};
use support::{Scratch, directory, git_in, launcher, run};

const TIME: Duration = Duration::from_secs(20);
const WIDE: TreeBounds = TreeBounds { bytes: 1 << 30, files: 10_000 };

/// Makes `outside` a repository with two branches and a tag, and clones it.
struct Source(Scratch);

impl Source {
    fn new() -> Self {
        let source = Self(Scratch::new());
        fs::remove_file(source.path().join("canary")).unwrap();
        source.git(&["init", "-q", "-b", "trunk"]);
        fs::write(source.path().join("a"), "one\n").unwrap();
        source.git(&["add", "a"]);
        source.git(&["commit", "-q", "-m", "one"]);
        source.git(&["tag", "-m", "v1", "v1"]);
        source.git(&["checkout", "-q", "-b", "topic"]);
        fs::write(source.path().join("a"), "two\n").unwrap();
        source.git(&["commit", "-q", "-a", "-m", "two"]);
        source.git(&["checkout", "-q", "trunk"]);
        source.own();
        source
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.outside()
    }

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8(run(&mut git_in(&self.path(), args))).unwrap()
    }

    /// Runs `git clone` beside the source, which has to be that of this user meanwhile.
    fn git_clone(&self, args: &[&str]) {
        run(Command::new("chown").arg("-R").arg("0:0").arg(self.path()));
        run(&mut git_in(self.0.dir.path(), &[&["clone", "-q"], args].concat()));
        self.own();
    }

    fn own(&self) {
        run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", self.0.uid)).arg(self.path()));
    }

    fn clone(&self, revision: &str) -> Result<(), CloneError> {
        self.clone_from(&self.path(), revision)
    }

    fn clone_from(&self, source: &Path, revision: &str) -> Result<(), CloneError> {
        self.clone_of(source, revision, "")
    }

    fn clone_of(&self, source: &Path, revision: &str, work_tree: &str) -> Result<(), CloneError> {
        self.clone_within(source, revision, work_tree, WIDE)
    }

    fn clone_within(
        &self,
        source: &Path,
        revision: &str,
        work_tree: &str,
        most: TreeBounds,
    ) -> Result<(), CloneError> {
        let spec = CloneSpec {
            workspace: directory(&self.0.workspace()),
            source: directory(source),
            revision: revision.to_owned(),
            work_tree: work_tree.to_owned(),
            most,
            owner_uid: self.0.uid,
            owner_gid: self.0.uid,
        };
        launcher().clone_repository(&spec, TIME)
    }

    fn cloned(&self, args: &[&str]) -> String {
        self.0.git(args)
    }
}

#[test]
fn a_clone_has_its_branch_and_nothing_of_the_host() {
    for (revision, branch, content) in [
        ("", "trunk\n", "one\n"),
        ("trunk", "trunk\n", "one\n"),
        ("topic", "topic\n", "two\n"),
        ("v1", "", "one\n"),
    ] {
        let source = Source::new();
        source.clone(revision).unwrap();
        assert_eq!(source.cloned(&["branch", "--show-current"]), branch, "{revision}");
        assert_eq!(fs::read_to_string(source.0.workspace().join("a")).unwrap(), content);
        assert_eq!(source.cloned(&["status", "--porcelain"]), "");
        assert_eq!(source.cloned(&["remote"]), "");
        assert_eq!(source.cloned(&["tag"]), "v1\n");
        assert_eq!(
            source.cloned(&["for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"]).trim(),
            { if branch.is_empty() { String::new() } else { format!("refs/heads/{}", branch.trim()) } }
        );
        source.cloned(&["fsck", "--strict"]);
        let host = source.0.dir.path().to_str().unwrap();
        for (path, _, uid, content) in support::fingerprint(&source.0.workspace()) {
            assert_eq!(uid, source.0.uid, "{path:?}");
            assert!(!String::from_utf8_lossy(&content).contains(host), "a host path in {path:?}");
        }
    }
}

#[test]
fn a_commit_and_a_bare_source() {
    let source = Source::new();
    let first = source.git(&["rev-parse", "v1^{commit}"]);
    let bare = source.0.dir.path().join("bare.git");
    run(Command::new("cp").arg("-a").arg(source.path().join(".git")).arg(&bare));
    run(&mut git_in(&bare, &["--git-dir=.", "config", "core.bare", "true"]));
    run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", source.0.uid)).arg(&bare));
    source.clone_from(&bare, first.trim()).unwrap();
    assert_eq!(source.cloned(&["rev-parse", "HEAD"]), first);
}

#[test]
fn uncloneable_sources_are_refused() {
    let refused = |source: &Source, revision: &str| match source.clone(revision).unwrap_err() {
        CloneError::Refused(words) => words,
        other => panic!("{other:?}"),
    };
    let source = Source::new();
    assert_eq!(refused(&source, "nope"), "the source has no branch, tag or commit 'nope'");
    assert_eq!(refused(&source, ""), "the workspace to clone into is not empty");

    let source = Source::new();
    fs::remove_dir_all(source.path().join(".git")).unwrap();
    assert_eq!(refused(&source, ""), "the source is not a git repository");
    source.git(&["init", "-q"]);
    source.own();
    assert_eq!(refused(&source, ""), "the source has no commits");

    let source = Source::new();
    run(Command::new("chown").args(["-R", "0:0"]).arg(source.path()));
    assert_eq!(refused(&source, ""), "the source belongs to another user than the workspace");
}

#[test]
fn hooks_and_templates_of_the_source_are_not_cloned() {
    let source = Source::new();
    let hook = source.path().join(".git/hooks/post-checkout");
    fs::write(&hook, "#!/bin/sh\ntouch RAN\n").unwrap();
    run(Command::new("chmod").arg("755").arg(&hook));
    source.own();
    source.clone("").unwrap();
    assert!(!source.0.workspace().join(".git/hooks/post-checkout").exists());
    assert!(!source.0.workspace().join("RAN").exists());
}

/// The words of a refusal.
fn refusal(cloned: Result<(), CloneError>) -> String {
    match cloned.unwrap_err() {
        CloneError::Refused(words) => words,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_shallow_source_makes_a_shallow_clone() {
    for revision in ["", "topic"] {
        let source = Source::new();
        source.git(&["commit", "-q", "--allow-empty", "-m", "more"]);
        let shallow = source.0.dir.path().join("shallow");
        let url = format!("file://{}", source.path().display());
        source.git_clone(&["--depth", "1", "--no-single-branch", &url, "shallow"]);
        run(&mut git_in(&shallow, &["branch", "-q", "topic", "origin/topic"]));
        run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", source.0.uid)).arg(&shallow));
        source.clone_from(&shallow, revision).unwrap();
        source.cloned(&["fsck", "--strict"]);
        assert_eq!(source.cloned(&["status", "--porcelain"]), "");
        assert_eq!(source.cloned(&["rev-list", "--count", "HEAD"]), "1\n", "{revision}");
        assert_eq!(source.cloned(&["rev-parse", "--is-shallow-repository"]), "true\n");
        let mut host_worker = source.0.host_worker();
        assert!(host_worker.log(&["--stat"], "HEAD", &[]).contains(if revision.is_empty() {
            "more"
        } else {
            "two"
        }));
        source.0.write("a", "changed\n");
        host_worker.add(&["."]).unwrap();
        host_worker.commit("on top").unwrap();
        source.cloned(&["gc", "-q"]);
    }
}

#[test]
fn a_detached_head_is_cloned_also_where_no_branch_has_it() {
    let source = Source::new();
    source.git(&["checkout", "-q", "--detach"]);
    fs::write(source.path().join("a"), "three\n").unwrap();
    source.git(&["commit", "-q", "-a", "-m", "three"]);
    source.own();
    source.clone("").unwrap();
    assert_eq!(source.cloned(&["rev-parse", "HEAD"]), source.git(&["rev-parse", "HEAD"]));
    assert_eq!(fs::read_to_string(source.0.workspace().join("a")).unwrap(), "three\n");
}

#[test]
fn the_repository_of_a_linked_work_tree_is_cloned_at_its_head() {
    for (args, branch) in [(&["-b", "mine"][..], "mine\n"), (&["--detach"], "")] {
        let source = Source::new();
        let tree = source.0.dir.path().join("tree");
        source.git(&[&["worktree", "add", "-q"], args, &[tree.to_str().unwrap()]].concat());
        fs::write(tree.join("a"), "in the tree\n").unwrap();
        run(&mut git_in(&tree, &["commit", "-q", "-a", "-m", "tree"]));
        source.own();
        source.clone_of(&source.path().join(".git"), "", "tree").unwrap();
        assert_eq!(source.cloned(&["branch", "--show-current"]), branch);
        assert_eq!(fs::read_to_string(source.0.workspace().join("a")).unwrap(), "in the tree\n");
        assert_eq!(source.cloned(&["status", "--porcelain"]), "");
        source.cloned(&["fsck", "--strict"]);
        assert!(!source.0.workspace().join(".git/worktrees").exists());
    }
}

#[test]
fn a_source_whose_clone_would_be_broken_is_refused_with_the_reason() {
    let source = Source::new();
    let borrower = source.0.dir.path().join("borrower");
    source.git_clone(&["--shared", "outside", "borrower"]);
    let own =
        |path: &Path| run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", source.0.uid)).arg(path));
    own(&borrower);
    assert!(refusal(source.clone_from(&borrower, "")).contains("objects/info/alternates"));
    // The remedy that the refusal names.
    run(&mut git_in(&borrower, &["repack", "-q", "-a", "-d"]));
    fs::remove_file(borrower.join(".git/objects/info/alternates")).unwrap();
    own(&borrower);
    source.clone_from(&borrower, "").unwrap();
    source.cloned(&["fsck", "--strict"]);

    let source = Source::new();
    source.git(&["config", "uploadpack.allowFilter", "true"]);
    let partial = source.0.dir.path().join("partial");
    let url = format!("file://{}", source.path().display());
    source.git_clone(&["--filter=blob:none", &url, "partial"]);
    run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", source.0.uid)).arg(&partial));
    assert!(refusal(source.clone_from(&partial, "")).contains("partial clone"));

    let tree = source.0.dir.path().join("tree");
    source.git(&["worktree", "add", "-q", tree.to_str().unwrap()]);
    source.own();
    run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", source.0.uid)).arg(&tree));
    assert!(refusal(source.clone_from(&tree, "")).contains("its .git is a file"));

    let source = Source::new();
    fs::remove_dir_all(source.path().join(".git")).unwrap();
    source.git(&["init", "-q", "--object-format=sha256"]);
    source.git(&["add", "-A"]);
    source.git(&["commit", "-q", "-m", "one"]);
    source.own();
    assert!(refusal(source.clone("")).contains("extensions.objectFormat"));
}

#[test]
fn files_are_checked_out_in_their_encodings_and_filtered_ones_as_they_are_stored() {
    let source = Source::new();
    let attributes = "*.wide working-tree-encoding=UTF-16 eol=crlf\n*.be working-tree-encoding=UTF-16BE text\n*.bin filter=lfs -text\n*.id ident\n*.crlf text eol=crlf\n";
    let pointer =
        format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 3\n", "0".repeat(64));
    for (path, content) in [
        (".gitattributes", attributes.as_bytes()),
        ("a.wide", b"\xff\xfew\0\r\0\n\0"),
        ("a.be", b"\0w\0\n"),
        ("a.bin", pointer.as_bytes()),
        ("a.id", b"$Id$\n"),
        ("a.crlf", b"one\r\ntwo\r\n"),
    ] {
        fs::write(source.path().join(path), content).unwrap();
    }
    source.git(&["add", "-A"]);
    source.git(&["commit", "-q", "-m", "converted"]);
    source.own();
    source.clone("").unwrap();
    let by_git = source.0.dir.path().join("by-git");
    source.git_clone(&["outside", "by-git"]);
    for path in ["a.be", "a.bin", "a.id", "a.crlf"] {
        let [ours, theirs] =
            [source.0.workspace(), by_git.clone()].map(|top| fs::read(top.join(path)).unwrap());
        assert_eq!(ours, theirs, "{path}");
    }
    // The C library of another git may choose the other order.
    assert_eq!(fs::read(source.0.workspace().join("a.wide")).unwrap(), b"\xff\xfew\0\r\0\n\0");
    assert_eq!(source.cloned(&["status", "--porcelain"]), "");
    assert_eq!(source.0.host_worker().status(), "## trunk\n");

    let source = Source::new();
    fs::write(source.path().join(".gitattributes"), "*.jp working-tree-encoding=SHIFT-JIS\n").unwrap();
    fs::write(source.path().join("a.jp"), "x\n").unwrap();
    source.git(&["add", "-A"]);
    source.git(&["commit", "-q", "-m", "japanese"]);
    source.own();
    assert!(
        refusal(source.clone(""))
            .contains("a.jp cannot be checked out: its working-tree-encoding is SHIFT-JIS")
    );
}

/// Asserts that a clone of `source` within 1 MiB is refused because of its size, in these words.
fn is_excess(source: &Source, revision: &str, files: u64, words: &str) {
    let most = TreeBounds { bytes: 1 << 20, files };
    let refused = source.clone_within(&source.path(), revision, "", most).unwrap_err();
    assert!(matches!(&refused, CloneError::Excess(why) if why.contains(words)), "{refused:?}");
}

#[test]
fn a_clone_beyond_its_bounds_is_refused_before_its_files_are_written() {
    let source = Source::new();
    fs::File::create(source.path().join("zeros")).unwrap().set_len(16 << 20).unwrap();
    source.git(&["add", "zeros"]);
    source.git(&["commit", "-q", "-m", "zeros"]);
    source.own();
    is_excess(&source, "", 1_000, "takes at least 17 MiB and may take 1 MiB");
    assert!(!source.0.workspace().join("zeros").exists());
    // The commit before it fits, although its repository has the object.
    fs::remove_dir_all(source.0.workspace().join(".git")).unwrap();
    let most = TreeBounds { bytes: 1 << 20, files: 1_000 };
    source.clone_within(&source.path(), "v1", "", most).unwrap();
    assert_eq!(fs::read_to_string(source.0.workspace().join("a")).unwrap(), "one\n");

    let source = Source::new();
    fs::write(source.path().join(".git/objects/pack/left"), vec![0; 3 << 19]).unwrap();
    source.own();
    is_excess(&source, "", 1_000, "takes at least 2 MiB");
    assert_eq!(fs::read_dir(source.0.workspace()).unwrap().count(), 0, "not even a repository");

    let source = Source::new();
    for name in 0..50 {
        fs::write(source.path().join(name.to_string()), "same\n").unwrap();
    }
    source.git(&["add", "-A"]);
    source.git(&["commit", "-q", "-m", "names"]);
    source.own();
    is_excess(&source, "", 60, "has at least 61 files, directories and references");
    assert!(!source.0.workspace().join("0").exists());
}

#[test]
fn a_clone_whose_files_grow_beyond_its_bounds_when_they_are_written_is_ended() {
    let crlf = ("*.grows text eol=crlf\n", b"x\n".repeat(200 << 10));
    let utf_16 = [&b"\xff\xfe"[..], &b"x\0".repeat(300 << 10)[..]].concat();
    let wide = ("*.grows working-tree-encoding=UTF-16\n", utf_16);
    for (attributes, content) in [crlf, wide] {
        let source = Source::new();
        fs::write(source.path().join(".gitattributes"), attributes).unwrap();
        for name in ["a.grows", "b.grows"] {
            fs::write(source.path().join(name), &content).unwrap();
        }
        source.git(&["add", "-A"]);
        source.git(&["commit", "-q", "-m", "grows"]);
        source.own();
        is_excess(&source, "", 1_000, "takes at least 2 MiB and may take 1 MiB");
    }
}
