//! log and show have the facts of the `git` command, in histories that a generator makes, each the same in every run.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use operations::{Git, Reason};
use support::{Dice, Hand, Scratch, facts, paths};
use wire::v1::git_request::Command;
use wire::v1::{GitLog, GitRequest, GitShow};

const HISTORIES: u64 = 5;
const COMMITS: u64 = 20;
const NAMES: [&str; 7] = ["a", "b.rs", "d/x", "d/y", "d/deep/z", "with space", "ünï"];

/// A repository whose history has branches, merges, tags, removals and two authors.
fn history(seed: u64) -> Scratch {
    let scratch = Scratch::new();
    scratch.init();
    let mut dice = Dice(seed);
    let mut branches = vec!["main".to_owned()];
    for number in 0..COMMITS {
        if number > 0 {
            match dice.roll(6) {
                0 => {
                    let name = format!("branch/{number}");
                    scratch.git(&["checkout", "-q", "-b", &name]);
                    branches.push(name);
                }
                1 => drop(scratch.git(&["checkout", "-q", &branches[dice.roll(branches.len())]])),
                2 => {
                    let other = branches[dice.roll(branches.len())].clone();
                    merge(&scratch, &other, number);
                    continue;
                }
                3 => drop(scratch.git(&[
                    "tag",
                    "-a",
                    "-m",
                    &format!("tag\n\nof {number}"),
                    &format!("v{number}"),
                ])),
                _ => {}
            }
        }
        for _ in 0..=dice.roll(3) {
            let name = NAMES[dice.roll(NAMES.len())];
            if dice.roll(6) == 0 {
                let _ = fs::remove_file(scratch.workspace().join(name));
            } else {
                scratch.write(name, dice.content() + &format!("{number}\n"));
            }
        }
        scratch.git(&["add", "-A"]);
        let message = format!("Commit {number}\n\nWhy it was made:\n\n    code\n\tand ü\n");
        commit(&scratch, &["commit", "-q", "--allow-empty", "-m", &message], number);
    }
    scratch.git(&["reset", "-q", "--hard"]);
    scratch
}

/// What the git command says of a repository that it leaves as it is.
fn git(scratch: &Scratch, args: &[&str]) -> String {
    String::from_utf8(support::run(&mut scratch.git_command(args))).unwrap()
}

/// Commits have dates that grow, in zones of the world.
fn commit(scratch: &Scratch, args: &[&str], number: u64) {
    let zone = ["+0000", "-0330", "+0545"][usize::try_from(number % 3).unwrap()];
    let date = format!("{} {zone}", 1_700_000_000 + number * 1_000);
    let output = scratch
        .git_command(args)
        .env("GIT_AUTHOR_DATE", &date)
        .env("GIT_COMMITTER_DATE", &date)
        .env("GIT_AUTHOR_NAME", if number.is_multiple_of(2) { "A U Thor" } else { "Ünï Cödé" })
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    scratch.own();
}

/// Both sides of it, whatever they say: conflicts are not what this is about.
fn merge(scratch: &Scratch, other: &str, number: u64) {
    let ours = if number.is_multiple_of(2) { "ours" } else { "theirs" };
    let merged =
        scratch.git_command(&["merge", "-q", "--no-commit", "--no-ff", "-X", ours, other]).output().unwrap();
    if !merged.status.success() {
        scratch.git(&["add", "-A"]);
    }
    commit(scratch, &["commit", "-q", "--allow-empty", "-m", &format!("Merge {other}")], number);
}

/// Words without the white space around lines.
fn plain(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

fn same(ours: &str, theirs: &str, what: &str) {
    let (ours, theirs) = (plain(ours), plain(theirs));
    let first = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs);
    let at = first.unwrap_or(ours.len().min(theirs.len())).saturating_sub(12);
    assert_eq!(ours.get(at..at + 20), theirs.get(at..at + 20), "{what}");
    assert_eq!(ours, theirs, "{what}");
}

#[test]
fn histories_are_those_of_git() {
    let mut compared = 0;
    for seed in 0..HISTORIES {
        let scratch = history(seed);
        let mut host_worker = scratch.host_worker();
        let git = |args: &[&str]| git(&scratch, args);
        let tips = git(&["for-each-ref", "--format=%(refname)"]);
        for tip in tips.lines().chain(["HEAD"]) {
            let what = format!("history {seed}, {tip}");
            same(&host_worker.log(&[], tip, &[]), &git(&["log", tip]), &what);
            for limit in [&["d"][..], &["a"], &["d/deep/z", "with space"], &["."]] {
                let theirs = git(&[&["log", tip, "--"], limit].concat());
                same(&host_worker.log(&[], tip, limit), &theirs, &format!("{what}, {limit:?}"));
            }
            let range = format!("main..{tip}");
            same(&host_worker.log(&[], &range, &[]), &git(&["log", &range]), &range);
            same(&host_worker.log(&[], &range, &["d"]), &git(&["log", &range, "--", "d"]), &range);
        }
        // Which of two files was renamed is a guess.
        let renames = |log: &str| log.lines().any(|line| line.starts_with('R') && line.contains('\t'));
        let is_plain = !renames(&git(&["log", "--name-status"]))
            && !renames(&host_worker.log(&["--name-status"], "HEAD", &[]));
        for format in ["--name-only", "--name-status"] {
            if is_plain {
                let theirs = git(&["log", format]);
                same(&host_worker.log(&[format], "HEAD", &[]), &theirs, &format!("history {seed}, {format}"));
                compared += 1;
            }
        }
        let subjects = |log: &str| -> Vec<String> {
            log.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
        };
        let ours = host_worker.log(&["--oneline"], "HEAD", &[]);
        assert_eq!(subjects(&ours), subjects(&git(&["log", "--oneline"])));
        let last = git(&["log", "-n", "3"]);
        let few = operation(Command::Log(GitLog { max_count: Some(3), ..Default::default() }));
        let ours = host_worker.call(&few.unwrap()).unwrap();
        let operations::OpResult::Git(ours) = ours else { panic!("{ours:?}") };
        same(&ours.output, &last, "the last three");
    }
    assert!(compared > 0, "each history has renames");
}

#[test]
fn commits_are_shown_as_git_has_them() {
    for seed in 0..HISTORIES {
        let scratch = history(seed);
        let mut host_worker = scratch.host_worker();
        for id in git(&scratch, &["rev-list", "--all"]).lines() {
            let what = format!("history {seed}, {id}");
            shown(&scratch, &mut host_worker, id, &what);
            for path in git(&scratch, &["ls-tree", "-r", "-z", "--name-only", id]).split_terminator('\0') {
                let file = format!("{id}:{path}");
                assert_eq!(host_worker.show(&[], &file, &[]), git(&scratch, &["show", &file]), "{file}");
            }
            let tree = host_worker.show(&[], &format!("{id}:"), &[]);
            let names: Vec<_> = tree.lines().skip(2).map(|name| name.replace('/', "")).collect();
            let theirs = git(&scratch, &["ls-tree", "--name-only", id]);
            assert_eq!(names, theirs.lines().collect::<Vec<_>>(), "{what}");
        }
        for tag in git(&scratch, &["tag"]).lines() {
            let theirs = git(&scratch, &["show", "--no-patch", tag]);
            same(&host_worker.show(&["--no-patch"], tag, &[]), &theirs, &format!("history {seed}, {tag}"));
        }
    }
}

/// Names and numbers of the changes, and a patch that makes the commit's tree of that of its parent.
fn shown(scratch: &Scratch, host_worker: &mut Hand, id: &str, what: &str) {
    let theirs = |format: &str| {
        git(scratch, &["show", "--format=", "--first-parent", "-m", "--no-renames", format, id])
    };
    let changes = |shown: &str| -> String {
        // After the message there is nothing but changes.
        let skipped =
            shown.lines().skip_while(|line| !line.is_empty()).skip(1).skip_while(|line| !line.is_empty());
        skipped
            .filter(|line| line.contains('\t') && !line.starts_with("    "))
            .flat_map(|line| [line, "\n"])
            .collect()
    };
    let names = changes(&host_worker.show(&["--name-status"], id, &[]));
    assert_eq!(facts::name_status(&names), facts::name_status(&theirs("--name-status")), "{what}");
    let numbers = facts::numbers(&changes(&host_worker.show(&["--numstat"], id, &[])));
    assert!(numbers.is_subset(&facts::numbers(&theirs("--numstat"))), "{what}");

    let index = scratch.outside().join("index");
    let with_index = |args: &[&str]| {
        let mut command = scratch.git_command(args);
        command.env("GIT_INDEX_FILE", &index);
        command
    };
    let parent = scratch.git_command(&["rev-parse", "--verify", "-q", &format!("{id}^")]).output().unwrap();
    let parent = String::from_utf8(parent.stdout).unwrap();
    let tree = if parent.is_empty() { "--empty" } else { parent.trim() };
    support::run(&mut with_index(&["read-tree", tree]));
    let shown = host_worker.show(&[], id, &[]);
    if let Some((_, patch)) = shown.split_once("\ndiff --git ") {
        let mut apply =
            with_index(&["apply", "--cached", "--whitespace=nowarn"]).stdin(Stdio::piped()).spawn().unwrap();
        apply.stdin.take().unwrap().write_all(["diff --git ", patch].concat().as_bytes()).unwrap();
        assert!(apply.wait().unwrap().success(), "{what}: {shown}");
    }
    let made = String::from_utf8(support::run(&mut with_index(&["write-tree"]))).unwrap();
    assert_eq!(made, git(scratch, &["rev-parse", &format!("{id}^{{tree}}")]), "{what}");
}

#[test]
fn only_objects_of_the_repository_are_shown() {
    let scratch = Scratch::new();
    scratch.init();
    let mut host_worker = scratch.host_worker();
    let mut refused = |command: Git| {
        let failure = host_worker.git(command).unwrap_err();
        (failure.reason, failure.message)
    };
    let unborn = refused(support::log(&[], "HEAD", &[]));
    assert_eq!(unborn, (Reason::PreconditionFailed, "there is no commit yet on this branch".to_owned()));
    scratch.write("a", "one\n");
    scratch.write("binary", b"\0\x01\xff");
    scratch.commit_all("one");
    for missing in ["nothing", "a", "deadbeef", "HEAD~1", "HEAD^2", "config", "HEAD^{tree}"] {
        let (reason, message) = refused(support::log(&[], missing, &[]));
        assert_eq!(reason, Reason::NotFound, "{missing}: {message}");
        assert!(message.starts_with(&format!("unknown revision '{missing}'")), "{message}");
    }
    let (reason, message) = refused(support::show(&[], "HEAD:b", &[]));
    assert_eq!((reason, &*message), (Reason::NotFound, "'b' does not exist in 'HEAD'"));
    for own in ["HEAD:.git/config", "HEAD:a/../.git/hooks"] {
        let failed = operation(Command::Show(GitShow { revision: own.to_owned(), ..Default::default() }));
        let reason = match failed {
            Ok(operation) => host_worker.call(&operation).unwrap_err().reason,
            Err(malformed) => malformed.reason,
        };
        assert_eq!(reason, Reason::SandboxViolation, "{own}");
    }
    for own in [".git", ".git/refs"] {
        let failure = host_worker.git(support::log(&[], "HEAD", &[own])).unwrap_err();
        assert_eq!(failure.reason, Reason::SandboxViolation, "{own}");
    }
    let failure = host_worker.git(support::log(&["--name-only", "--name-status"], "HEAD", &[])).unwrap_err();
    assert_eq!(failure.reason, Reason::InvalidArgument);
    assert_eq!(host_worker.show(&[], "HEAD:binary", &[]), "(HEAD:binary is binary, 3 bytes)\n");
    assert_eq!(host_worker.show(&[], "HEAD^{tree}", &[]), "tree HEAD^{tree}\n\na\nbinary\n");
    assert_eq!(host_worker.show(&["--name-only", "--oneline"], "@", &["a"]).lines().nth(1), Some("a"));

    let whole = host_worker.log(&[], "HEAD", &[]);
    host_worker.bounds.max_output_bytes = 20;
    let cut = host_worker.git(support::log(&[], "HEAD", &[])).unwrap();
    assert!(cut.truncated && cut.output == whole[..20] && cut.omitted_bytes > 0, "{cut:?}");
}

#[test]
fn a_shallow_clone_ends_where_it_was_cut() {
    let scratch = history(1);
    let clone = scratch.outside().join("shallow");
    let source = format!("file://{}", scratch.workspace().display());
    // The other side of a clone asks no configuration of this one.
    support::run(std::process::Command::new("chown").args(["-R", "0:0"]).arg(scratch.workspace()));
    support::run(&mut scratch.git_command(&[
        "clone",
        "-q",
        "--depth",
        "2",
        &source,
        clone.to_str().unwrap(),
    ]));
    fs::remove_dir_all(scratch.workspace().join(".git")).unwrap();
    fs::rename(clone.join(".git"), scratch.workspace().join(".git")).unwrap();
    scratch.own();
    same(&scratch.host_worker().log(&[], "HEAD", &[]), &scratch.git(&["log"]), "shallow");
}

#[test]
fn adding_everything_stages_the_same_files_as_git() {
    let scratch = Scratch::new();
    scratch.init();
    for name in ["changed", "gone", "d/gone", "kept"] {
        scratch.write(name, "one\n");
    }
    scratch.commit_all("one");
    scratch.write("changed", "two\n");
    scratch.write("new/file", "new\n");
    fs::remove_file(scratch.workspace().join("gone")).unwrap();
    fs::remove_dir_all(scratch.workspace().join("d")).unwrap();
    let mut host_worker = scratch.host_worker();
    host_worker.git(Git::Add { paths: paths(&["."]) }).unwrap();
    let ours = scratch.git(&["status", "--porcelain"]);
    scratch.git(&["reset", "-q"]);
    scratch.git(&["add", "-A"]);
    assert_eq!(ours, scratch.git(&["status", "--porcelain"]));
    assert_eq!(ours, "M  changed\nD  d/gone\nD  gone\nA  new/file\n");
}

fn operation(command: Command) -> Result<operations::Operation, operations::Malformed> {
    GitRequest { command: Some(command) }.try_into()
}
