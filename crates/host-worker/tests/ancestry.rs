//! The walk from a commit to its ancestors, in repositories whose files say otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::fd::AsFd as _;
use std::time::Duration;

use support::{Scratch, directory, git_in, launcher, run};

const TIME: Duration = Duration::from_secs(20);

/// A workspace with the commits one ← two, and three without a parent.
struct Commits {
    scratch: Scratch,
    one: String,
    two: String,
    three: String,
}

impl Commits {
    fn new() -> Self {
        let scratch = Scratch::new();
        scratch.init();
        let mut commits = Self { scratch, one: String::new(), two: String::new(), three: String::new() };
        commits.one = commits.commit(&[]);
        let parent = ["-p", &commits.one.clone()].map(str::to_owned);
        commits.two = commits.commit(&parent);
        commits.three = commits.commit(&[]);
        commits
    }

    fn git(&self, args: &[&str]) -> String {
        String::from_utf8(run(&mut git_in(&self.scratch.workspace(), args))).unwrap().trim().to_owned()
    }

    /// Makes a commit with these parents, and returns its id.
    fn commit(&self, parents: &[String]) -> String {
        let tree = self.git(&["hash-object", "-t", "tree", "-w", "/dev/null"]);
        let message = format!("{parents:?} {}", self.one);
        let parents = parents.iter().map(String::as_str);
        let args: Vec<&str> = ["commit-tree", &tree, "-m", &message].into_iter().chain(parents).collect();
        self.git(&args)
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.scratch.workspace().join(".git").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn ask(&self, pairs: &[(&str, &str)]) -> Vec<Option<bool>> {
        self.scratch.own();
        let pairs = pairs.iter().map(|(old, new)| ((*old).to_owned(), (*new).to_owned())).collect();
        let workspace = directory(&self.scratch.workspace());
        launcher().ancestry(workspace.as_fd(), pairs, (self.scratch.uid, self.scratch.uid), TIME).unwrap()
    }
}

#[test]
fn an_ancestor_is_found_loose_and_packed() {
    let commits = Commits::new();
    let (one, two, three) = (commits.one.as_str(), commits.two.as_str(), commits.three.as_str());
    let unknown = "1".repeat(40);
    let pairs = [(one, two), (two, one), (two, three), (one, unknown.as_str()), (unknown.as_str(), two)];
    let expected = [Some(true), Some(false), Some(false), None, Some(false)];
    assert_eq!(commits.ask(&pairs), expected);
    for (name, id) in [("a", two), ("b", three)] {
        commits.git(&["update-ref", &format!("refs/heads/{name}"), id]);
    }
    commits.git(&["-c", "gc.auto=0", "repack", "-a", "-d", "-q"]);
    assert_eq!(commits.ask(&pairs), expected);
}

#[test]
fn grafts_replacements_and_shallow_boundaries_have_no_effect() {
    let commits = Commits::new();
    let Commits { one, two, three, .. } = &commits;
    // Each of these has the git command believe that three comes after two.
    commits.write("info/grafts", &format!("{three} {two}\n"));
    let replacement = commits.commit(&["-p".to_owned(), two.clone()]);
    commits.git(&["update-ref", &format!("refs/replace/{three}"), &replacement]);
    assert_eq!(commits.ask(&[(two, three)]), [Some(false)]);
    // And this has it believe that two has no parent.
    commits.write("shallow", &format!("{two}\n"));
    assert_eq!(commits.ask(&[(one, two)]), [Some(true)]);
}

#[test]
fn an_object_under_the_name_of_another_is_not_believed() {
    let commits = Commits::new();
    let Commits { two, three, .. } = &commits;
    let forged = commits.commit(&["-p".to_owned(), two.clone()]);
    let objects = commits.scratch.workspace().join(".git/objects");
    let place = |id: &str| objects.join(&id[..2]).join(&id[2..]);
    fs::remove_file(place(three)).unwrap();
    fs::copy(place(&forged), place(three)).unwrap();
    assert_eq!(commits.ask(&[(two, three)]), [None]);
}

#[test]
fn what_cannot_be_read_is_not_known() {
    let commits = Commits::new();
    let Commits { one, two, .. } = &commits;
    let blob = commits.git(&["hash-object", "-w", "-t", "blob", "/dev/null"]);
    assert_eq!(commits.ask(&[(one, &blob)]), [None]);
    fs::remove_dir_all(commits.scratch.workspace().join(".git")).unwrap();
    assert_eq!(commits.ask(&[(one, two), (one, two)]), [None, None]);
}
