//! Git operations in linked work trees, used in place: the repository is in the jail, and only parts of it are writable.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use host_launch::LinkedSpec;
use operations::{Git, Operation, Reason};
use support::{Hand, Scratch, directory, fifo, fingerprint, git_in, launcher, run};

/// A repository, and the scratch directories whose workspaces are its work trees.
struct Repository {
    main: Scratch,
    trees: Vec<Scratch>,
    /// The git directory.
    git: PathBuf,
}

impl Repository {
    /// With a commit, and a work tree on a branch `agent-N` for each.
    fn new(count: usize, is_bare: bool) -> Self {
        let main = Scratch::new();
        main.init();
        main.write("a", "1\n");
        main.write("d/b", "1\n");
        main.commit_all("one");
        let mut repository = main.workspace().join(".git");
        if is_bare {
            let bare = main.dir.path().join("bare");
            fs::rename(&repository, &bare).unwrap();
            run(&mut git_in(&bare, &["config", "core.bare", "true"]));
            fs::remove_dir_all(bare.join("logs")).unwrap();
            repository = bare;
        }
        let trees: Vec<_> = (0..count).map(|_| Scratch::new()).collect();
        for (number, tree) in trees.iter().enumerate() {
            let branch = format!("agent-{number}");
            run(git_in(&repository, &["worktree", "add", "-q", "-b", &branch]).arg(tree.workspace()));
            tree.own();
        }
        let trees = Self { main, trees, git: repository };
        // As the daemon does.
        let _ = fs::create_dir(trees.git.join("logs"));
        trees.own();
        trees
    }

    fn own(&self) {
        run(Command::new("chown").args(["-Rh", "1234:1234"]).arg(&self.git));
    }

    /// Its part of the repository.
    fn own_part(&self, number: usize) -> PathBuf {
        let text = fs::read_to_string(self.trees[number].workspace().join(".git")).unwrap();
        PathBuf::from(text.strip_prefix("gitdir: ").unwrap().trim_end())
    }

    fn hand(&self, number: usize) -> Hand {
        let work_tree = self.own_part(number).file_name().unwrap().to_str().unwrap().to_owned();
        let linked = LinkedSpec { repository: directory(&self.git), work_tree };
        Hand::start_in(&launcher(), &self.trees[number], Some(linked))
    }

    fn git(&self, number: usize, args: &[&str]) -> String {
        let output = run(&mut git_in(&self.trees[number].workspace(), args));
        self.own();
        String::from_utf8(output).unwrap()
    }

    /// Everything in the repository but what the git operations of a work tree may write.
    fn kept(&self, number: usize) -> Vec<(PathBuf, u32, u32, Vec<u8>)> {
        let own = self.own_part(number);
        let mut all = fingerprint(&self.git);
        let written = ["objects", "refs", "logs"].map(|name| self.git.join(name));
        all.retain(|(path, ..)| !written.iter().any(|part| path.starts_with(part)));
        let fixed = ["commondir", "gitdir"].map(|name| own.join(name));
        all.retain(|(path, ..)| !path.starts_with(&own) || fixed.contains(path));
        all
    }
}

#[test]
fn git_works_in_a_linked_work_tree_as_the_git_command() {
    for is_bare in [false, true] {
        let trees = Repository::new(2, is_bare);
        let before = trees.kept(0);
        let mut hand = trees.hand(0);
        assert_eq!(hand.status(), "## agent-0\n", "bare: {is_bare}");
        hand.write("@project/a", "2\n").unwrap();
        hand.write("@project/new", "n\n").unwrap();
        assert_eq!(hand.status(), "## agent-0\n M a\n?? new\n");
        assert!(hand.diff(&[], &[]).contains("-1\n+2\n"));
        hand.preview(Git::Add { paths: support::paths(&["."]) }).unwrap();
        hand.add(&["."]).unwrap();
        assert_eq!(trees.git(0, &["status", "--porcelain"]), "M  a\nA  new\n");
        assert!(hand.preview(Git::Commit { message: "two".to_owned() }).unwrap().output.contains("+2"));
        hand.commit("two").unwrap();
        assert_eq!(trees.git(0, &["log", "--format=%s", "agent-0"]), "two\none\n");
        assert_eq!(trees.git(0, &["reflog", "--format=%gs", "-1"]), "commit: two\n");
        assert!(hand.log(&["--oneline"], "HEAD", &[]).contains("two"));
        assert!(hand.show(&[], "HEAD", &[]).contains("+2"));
        assert_eq!(trees.git(0, &["status", "--porcelain", "--branch"]), "## agent-0\n");
        assert_eq!(trees.git(1, &["log", "--format=%s"]), "one\n", "another work tree is where it was");
        trees.git(0, &["fsck", "--strict"]);
        assert_eq!(trees.kept(0), before);
        // A detached HEAD is the work tree's alone.
        trees.git(0, &["checkout", "-q", "--detach"]);
        hand.write("@project/a", "3\n").unwrap();
        hand.add(&["a"]).unwrap();
        hand.commit("three").unwrap();
        assert_eq!(trees.git(0, &["log", "--format=%s", "-1", "HEAD"]), "three\n");
        assert_eq!(trees.git(0, &["log", "--format=%s", "-1", "agent-0"]), "two\n");
    }
}

#[test]
fn work_trees_of_one_repository_commit_at_once() {
    const COMMITS: usize = 10;
    let trees = Repository::new(2, false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let mut hand = trees.hand(number);
            scope.spawn(move || {
                for commit in 0..COMMITS {
                    hand.write("@project/a", format!("{number} {commit}\n")).unwrap();
                    hand.add(&["a"]).unwrap();
                    hand.commit(&format!("{number} {commit}")).unwrap();
                }
            });
        }
    });
    for number in 0..2 {
        let expected: Vec<String> = (0..COMMITS).rev().map(|commit| format!("{number} {commit}")).collect();
        let found = trees.git(number, &["log", "--format=%s"]);
        assert_eq!(found.lines().collect::<Vec<_>>()[..COMMITS], expected[..], "{found}");
        assert_eq!(trees.git(number, &["status", "--porcelain"]), "");
    }
    trees.git(0, &["fsck", "--strict"]);
}

#[test]
fn the_kernel_keeps_all_else_of_the_repository_from_being_written() {
    let trees = Repository::new(2, false);
    fs::write(trees.own_part(0).join("config.worktree"), "").unwrap();
    trees.own();
    let hand = trees.hand(0);
    let name = trees.own_part(0).file_name().unwrap().to_str().unwrap().to_owned();
    let keeper = hand.process.pid();
    let mounts = fs::read_to_string(format!("/proc/{keeper}/mountinfo")).unwrap();
    let mut found: Vec<(&str, &str)> = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields[4].starts_with("/repository"))
        .map(|fields| (fields[4], fields[5]))
        .collect();
    found.sort_unstable();
    let own = format!("/repository/worktrees/{name}");
    let expected: Vec<(String, bool)> = [
        ("/repository".to_owned(), false),
        ("/repository/logs".to_owned(), true),
        ("/repository/objects".to_owned(), true),
        ("/repository/refs".to_owned(), true),
        (own.clone(), true),
        (format!("{own}/commondir"), false),
        (format!("{own}/config.worktree"), false),
        (format!("{own}/gitdir"), false),
    ]
    .into();
    assert_eq!(found.len(), expected.len(), "{mounts}");
    for ((path, flags), (expected, writable)) in found.iter().zip(expected) {
        assert_eq!(*path, expected);
        let access = if writable { "rw" } else { "ro" };
        assert!(flags.starts_with(&format!("{access},nosuid,nodev,noexec")), "{path} {flags}");
        assert!(flags.contains("nosymfollow"), "{path} {flags}");
    }
}

#[test]
fn a_git_file_that_changes_during_the_run_changes_nothing() {
    type Change = fn(&Path, &Repository);
    let changes: [Change; 5] = [
        |file, trees| fs::write(file, format!("gitdir: {}\n", trees.own_part(1).display())).unwrap(),
        |file, trees| fs::write(file, format!("gitdir: {}\n", trees.main.outside().display())).unwrap(),
        |file, _| {
            fs::remove_file(file).unwrap();
            fifo(file);
        },
        |file, _| {
            fs::remove_file(file).unwrap();
            run(&mut git_in(file.parent().unwrap(), &["init", "-q", "-b", "other"]));
        },
        |file, trees| {
            fs::remove_file(file).unwrap();
            symlink(trees.own_part(1), file).unwrap();
        },
    ];
    for (case, change) in changes.into_iter().enumerate() {
        let trees = Repository::new(2, false);
        let (mut hand, file) = (trees.hand(0), trees.trees[0].workspace().join(".git"));
        let (others, was) = (trees.own_part(1), fs::read(&file).unwrap());
        let before = fingerprint(&others);
        change(&file, &trees);
        hand.write("@project/a", "2\n").unwrap();
        assert_eq!(hand.status(), "## agent-0\n M a\n", "{case}");
        hand.add(&["a"]).unwrap();
        hand.commit("two").unwrap();
        assert_eq!(fingerprint(&others), before, "{case}");
        let _ = fs::remove_file(&file).or_else(|_| fs::remove_dir_all(&file));
        fs::write(&file, was).unwrap();
        assert_eq!(trees.git(0, &["log", "--format=%s", "agent-0"]), "two\none\n", "{case}");
        assert_eq!(trees.git(1, &["log", "--format=%s", "agent-1"]), "one\n", "{case}");
    }
}

#[test]
fn hostile_repositories_of_work_trees_are_refused_and_files_can_still_be_written() {
    type Plant = fn(&Repository, &Path);
    fn replace(place: &Path, to: &Path) {
        fs::rename(place, to.join("moved")).unwrap();
        symlink(to.join("moved"), place).unwrap();
    }
    let plants: [(&str, Plant); 13] = [
        ("commondir", |trees, own| {
            fs::write(own.join("commondir"), format!("{}\n", trees.main.outside().display())).unwrap();
        }),
        ("commondir", |_, own| fs::write(own.join("commondir"), "/workspace\n").unwrap()),
        ("gitdir", |_, own| {
            fs::remove_file(own.join("gitdir")).unwrap();
            fifo(own.join("gitdir"));
        }),
        ("commondir", |trees, _| fs::write(trees.git.join("commondir"), "/workspace\n").unwrap()),
        ("alternates", |trees, _| fifo(trees.git.join("objects/info/alternates"))),
        ("packed-refs", |trees, _| fifo(trees.git.join("packed-refs"))),
        ("HEAD", |trees, own| {
            fs::remove_file(own.join("HEAD")).unwrap();
            symlink(trees.main.outside().join("canary"), own.join("HEAD")).unwrap();
        }),
        ("index", |_, own| {
            fs::remove_file(own.join("index")).unwrap();
            fifo(own.join("index"));
        }),
        ("part of its repository", |trees, own| replace(own, &trees.main.outside())),
        ("part of its repository", |trees, _| {
            replace(&trees.git.join("worktrees"), &trees.main.outside());
        }),
        ("objects", |trees, _| replace(&trees.git.join("objects"), &trees.main.outside())),
        ("refs", |trees, _| replace(&trees.git.join("refs"), &trees.main.outside())),
        ("core.worktree", |trees, _| {
            run(&mut git_in(&trees.git, &["config", "core.worktree", "/state"]));
        }),
    ];
    for (word, plant) in plants {
        let trees = Repository::new(1, false);
        plant(&trees, &trees.own_part(0));
        trees.own();
        let outside = fingerprint(&trees.main.outside());
        let mut hand = trees.hand(0);
        hand.write("@project/a", "2\n").unwrap();
        for git in [
            Git::Status,
            Git::Add { paths: support::paths(&["a"]) },
            Git::Commit { message: "two".to_owned() },
        ] {
            let failure = hand.call(&Operation::Git(git)).unwrap_err();
            let refused = matches!(failure.reason, Reason::SandboxViolation | Reason::PreconditionFailed);
            assert!(refused && failure.message.contains(word), "{word}: {failure:?}");
            let shown = ["/repository", trees.main.dir.path().to_str().unwrap()];
            assert!(!shown.iter().any(|path| failure.message.contains(path)), "{failure:?}");
        }
        assert_eq!(fingerprint(&trees.main.outside()), outside, "{word}");
    }
}

#[test]
fn a_commit_moves_no_branch_that_another_work_tree_has_and_no_repository_of_another_user() {
    let trees = Repository::new(2, false);
    let mut hand = trees.hand(0);
    hand.write("@project/a", "2\n").unwrap();
    hand.add(&["a"]).unwrap();
    for branch in ["main", "agent-1"] {
        trees.git(0, &["symbolic-ref", "HEAD", &format!("refs/heads/{branch}")]);
        let failure = hand.commit("two").unwrap_err();
        assert!(failure.message.contains("checked out in another work tree"), "{failure:?}");
        assert_eq!(trees.git(0, &["log", "--format=%s", branch]), "one\n");
    }
    trees.git(0, &["symbolic-ref", "HEAD", "refs/heads/agent-0"]);
    std::os::unix::fs::chown(&trees.git, Some(0), Some(0)).unwrap();
    let failure = hand.commit("two").unwrap_err();
    assert!(failure.message.contains("another user"), "{failure:?}");
}

#[test]
fn missing_history_of_shallow_repositories_is_named() {
    let trees = Repository::new(1, false);
    trees.git(0, &["commit", "-q", "--allow-empty", "-m", "two"]);
    let tip = trees.git(0, &["rev-parse", "HEAD"]);
    let parent = trees.git(0, &["rev-parse", "HEAD~"]);
    let object = trees.git.join("objects").join(&parent[..2]).join(parent[2..].trim_end());
    fs::remove_file(object).unwrap();
    fs::write(trees.git.join("shallow"), tip).unwrap();
    trees.own();
    let mut hand = trees.hand(0);
    assert_eq!(hand.status(), "## agent-0\n");
    let failure = hand.git(support::log(&[], "HEAD", &[])).unwrap_err();
    assert!(failure.message.contains("shallow"), "{failure:?}");
}
