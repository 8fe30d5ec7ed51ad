//! Previews of pushes, in repositories that hide or forge what a push does.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::fd::AsFd as _;
use std::time::Duration;

use host_launch::LayerError;
use host_launch::push_preview::{MOST_COMMITS, MOST_DIFF, PushPreview, PushedCommit, UpdatePreview};
use support::{Scratch, directory, fifo, git_in, launcher, run};

const TIME: Duration = Duration::from_secs(20);
const ZERO: &str = "0000000000000000000000000000000000000000";

/// A workspace whose branch has a commit for each state of its files.
struct Pushed {
    scratch: Scratch,
}

impl Pushed {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.init();
        Self { scratch }
    }

    fn git(&self, args: &[&str]) -> String {
        let identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgSign=false"];
        let args = [&identity[..], args].concat();
        String::from_utf8(run(&mut git_in(&self.scratch.workspace(), &args))).unwrap().trim().to_owned()
    }

    /// Writes files, commits them, and returns the id of the commit.
    fn commit(&self, subject: &str, files: &[(&str, &[u8])]) -> String {
        for (path, content) in files {
            let path = self.scratch.workspace().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn ask_within(&self, updates: &[(&str, &str)], time: Duration) -> Result<PushPreview, LayerError> {
        self.scratch.own();
        let updates = updates.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect();
        let workspace = directory(&self.scratch.workspace());
        launcher().preview_push(workspace.as_fd(), updates, (self.scratch.uid, self.scratch.uid), time)
    }

    fn ask(&self, old: &str, new: &str) -> UpdatePreview {
        self.ask_within(&[(old, new)], TIME).unwrap().updates.remove(0)
    }
}

fn subjects(commits: &[PushedCommit]) -> Vec<&str> {
    commits.iter().map(|commit| commit.subject.as_str()).collect()
}

#[test]
fn an_update_is_shown_by_the_diff_of_both_objects() {
    let pushed = Pushed::new();
    let one = pushed.commit("one", &[("f", b"a\n"), ("d/bin", &[0, 1, 2])]);
    pushed.commit("two", &[("f", b"b\n")]);
    let three = pushed.commit("three", &[("f", b"c\n"), ("d/bin", &[0, 3])]);
    let update = pushed.ask(&one, &three);
    assert_eq!(subjects(&update.gained), ["three", "two"]);
    assert!(update.lost.is_empty() && update.unknown.is_empty() && update.remarks.is_empty(), "{update:?}");
    assert!(!update.gains_more && !update.is_cut);
    assert!(update.diff.contains("-a\n+c\n"), "{}", update.diff);
    assert!(update.diff.contains("Binary files a/d/bin and b/d/bin differ"), "{}", update.diff);
    assert!(update.diff.contains(" 2 files changed"), "{}", update.diff);
    assert_eq!(update.gained[0].author, "A <a@example.org>");
    assert_eq!(update.gained[0].id, three);
    let back = pushed.ask(&three, &one);
    assert_eq!((subjects(&back.lost), subjects(&back.gained)), (vec!["three", "two"], vec![]));
    assert!(back.diff.contains("-c\n+a\n"), "{}", back.diff);
}

#[test]
fn a_new_ref_is_shown_by_the_diffs_of_its_commits_and_a_deleted_one_by_its_last() {
    let pushed = Pushed::new();
    pushed.commit("one", &[("f", b"a\n")]);
    let two = pushed.commit("two", &[("f", b"b\n")]);
    let created = pushed.ask(ZERO, &two);
    assert_eq!(subjects(&created.gained), ["two", "one"]);
    let first = created.diff.find("-a\n+b\n").unwrap();
    let second = created.diff.find("+++ b/f\n@@ -0,0 +1 @@\n+a\n").unwrap();
    assert!(first < second, "{}", created.diff);
    let deleted = pushed.ask(&two, ZERO);
    assert_eq!((subjects(&deleted.lost), deleted.loses_more), (vec!["two"], true));
    assert!(deleted.gained.is_empty() && deleted.diff.is_empty());
}

#[test]
fn settings_of_the_repository_hide_nothing() {
    let pushed = Pushed::new();
    let one = pushed.commit("one", &[("f", b"a\n")]);
    let two = pushed.commit("two", &[("f", b"b\n"), (".gitattributes", b"* -diff\n")]);
    let three = pushed.commit("three", &[("f", b"a\n")]);
    let git = pushed.scratch.workspace().join(".git");
    fs::create_dir_all(git.join("info")).unwrap();
    fs::write(git.join("info/attributes"), "* -diff\n").unwrap();
    fs::write(git.join("info/grafts"), format!("{three} {one}\n")).unwrap();
    fs::write(git.join("shallow"), format!("{two}\n")).unwrap();
    pushed.git(&["update-ref", &format!("refs/replace/{two}"), &one]);
    let update = pushed.ask(&one, &two);
    assert!(update.diff.contains("-a\n+b\n"), "{}", update.diff);
    assert_eq!(subjects(&pushed.ask(&one, &three).gained), ["three", "two"]);
}

#[test]
fn an_object_that_is_missing_or_forged_is_unknown() {
    let pushed = Pushed::new();
    let one = pushed.commit("one", &[("f", b"a\n")]);
    let two = pushed.commit("two", &[("f", b"b\n")]);
    let three = pushed.commit("three", &[("f", b"c\n")]);
    let missing = "1".repeat(40);
    let update = pushed.ask(&one, &missing);
    assert_eq!((update.unknown, update.diff.as_str()), (vec![missing.clone()], ""));
    let update = pushed.ask(&missing, &two);
    assert_eq!((update.unknown, subjects(&update.gained)), (vec![missing], vec!["two", "one"]));
    let objects = pushed.scratch.workspace().join(".git/objects");
    let place = |id: &str| objects.join(&id[..2]).join(&id[2..]);
    fs::remove_file(place(&three)).unwrap();
    fs::copy(place(&two), place(&three)).unwrap();
    assert_eq!(pushed.ask(&one, &three).unknown, [three]);
    let file = pushed.git(&["rev-parse", &format!("{two}:f")]);
    fs::remove_file(place(&file)).unwrap();
    let update = pushed.ask(&one, &two);
    assert!(update.remarks[0].contains("the diff is not whole") && update.is_cut, "{update:?}");
    assert_eq!(subjects(&update.gained), ["two"]);
}

#[test]
fn a_commit_that_cannot_be_shown_is_not_passed_over() {
    let pushed = Pushed::new();
    let one = pushed.commit("one", &[("f", b"a\n")]);
    let tree = pushed.git(&["rev-parse", "HEAD^{tree}"]);
    let file = pushed.scratch.workspace().join("commit");
    fs::write(&file, format!("tree {tree}\nparent {one}\nauthor nobody\ncommitter nobody\n\nhidden\n"))
        .unwrap();
    let hidden = pushed.git(&["hash-object", "-t", "commit", "-w", "--literally", "commit"]);
    let merge = pushed.git(&["commit-tree", &tree, "-p", &one, "-p", &hidden, "-m", "merge"]);
    for (old, gained) in [(one.as_str(), vec!["merge"]), (ZERO, vec!["merge", "one"])] {
        let update = pushed.ask(old, &merge);
        assert_eq!((subjects(&update.gained), update.gains_more), (gained, true));
    }
}

#[test]
fn tags_are_followed_and_other_objects_are_named() {
    let pushed = Pushed::new();
    let one = pushed.commit("one", &[("f", b"a\n")]);
    pushed.git(&["tag", "-m", "released", "v1"]);
    let tag = pushed.git(&["rev-parse", "v1"]);
    assert_ne!(tag, one);
    let update = pushed.ask(ZERO, &tag);
    assert_eq!(
        (update.remarks, subjects(&update.gained)),
        (vec!["tag v1: released".to_owned()], vec!["one"])
    );
    let tree = pushed.git(&["rev-parse", "HEAD^{tree}"]);
    let update = pushed.ask(ZERO, &tree);
    assert!(update.remarks[0].contains("is a tree and no commit") && update.gained.is_empty(), "{update:?}");
    assert!(update.is_cut, "its content is not shown");
}

#[test]
fn a_huge_push_is_bounded() {
    let pushed = Pushed::new();
    let one = pushed.commit("one", &[("f", b"a\n")]);
    let long = "x\n".repeat(300_000);
    let names: Vec<String> = (0..400).map(|number| format!("many/{number}")).collect();
    let mut files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"y\n"[..])).collect();
    files.push(("a", long.as_bytes()));
    pushed.commit("huge", &files);
    for number in 0..MOST_COMMITS {
        pushed.commit(&number.to_string(), &[]);
    }
    let last = pushed.commit("last", &[]);
    let update = pushed.ask(&one, &last);
    assert_eq!((update.gained.len(), update.gains_more, update.is_cut), (MOST_COMMITS, true, true));
    assert_eq!(update.gained[0].subject, "last");
    assert!(update.diff.starts_with(" 401 files changed\n") && update.diff.len() as u64 <= MOST_DIFF);
    let updates = vec![(one.as_str(), last.as_str()); 64];
    let all = pushed.ask_within(&updates, TIME).unwrap();
    assert_eq!(all.updates.len(), 64);
    assert!(all.updates.iter().map(|update| update.diff.len() as u64).sum::<u64>() <= MOST_DIFF);
}

#[test]
fn a_fifo_among_the_objects_ends_the_preview_by_the_deadline() {
    let pushed = Pushed::new();
    let one = pushed.commit("one", &[("f", b"a\n")]);
    let object = pushed.scratch.workspace().join(".git/objects").join(&one[..2]).join(&one[2..]);
    fs::remove_file(&object).unwrap();
    fifo(&object);
    let asked = pushed.ask_within(&[(ZERO, &one)], Duration::from_secs(1));
    assert!(matches!(asked, Err(LayerError::TimedOut(_))), "{asked:?}");
}
