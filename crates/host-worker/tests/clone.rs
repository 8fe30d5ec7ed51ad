//! Cloning a local repository into a run's empty workspace.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use host_launch::{CloneError, CloneSpec};
use support::{Scratch, directory, git_in, launcher, run};

const TIME: Duration = Duration::from_secs(20);

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

    fn own(&self) {
        run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", self.0.uid)).arg(self.path()));
    }

    fn clone(&self, revision: &str) -> Result<(), CloneError> {
        self.clone_from(&self.path(), revision)
    }

    fn clone_from(&self, source: &Path, revision: &str) -> Result<(), CloneError> {
        let spec = CloneSpec {
            workspace: directory(&self.0.workspace()),
            source: directory(source),
            revision: revision.to_owned(),
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
fn what_cannot_be_cloned() {
    let refused = |source: &Source, revision: &str| match source.clone(revision).unwrap_err() {
        CloneError::Refused(words) => words,
        other => panic!("{other:?}"),
    };
    let source = Source::new();
    assert_eq!(refused(&source, "nope"), "the source has no branch, tag or commit 'nope'");
    assert_eq!(refused(&source, ""), "the workspace to clone into is not empty");

    let source = Source::new();
    fs::remove_dir_all(source.path().join(".git")).unwrap();
    assert_eq!(refused(&source, ""), "the source is no git repository");
    source.git(&["init", "-q"]);
    source.own();
    assert_eq!(refused(&source, ""), "the source has no commits");

    let source = Source::new();
    run(Command::new("chown").args(["-R", "0:0"]).arg(source.path()));
    assert_eq!(refused(&source, ""), "the source belongs to another user than the workspace");
}

#[test]
fn hooks_and_templates_of_the_source_do_not_come_along() {
    let source = Source::new();
    let hook = source.path().join(".git/hooks/post-checkout");
    fs::write(&hook, "#!/bin/sh\ntouch RAN\n").unwrap();
    run(Command::new("chmod").arg("755").arg(&hook));
    source.own();
    source.clone("").unwrap();
    assert!(!source.0.workspace().join(".git/hooks/post-checkout").exists());
    assert!(!source.0.workspace().join("RAN").exists());
}
