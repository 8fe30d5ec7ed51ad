//! status and diff, byte for byte those of the `git` command, in repositories that a generator makes: 120 states, each
//! the same in every run, with every flag that may be given.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use ops::{Git, OpResult, Operation};
use support::{Dice, Hand, Scratch};

const STATES: u64 = 120;
/// Tests among which they are divided.
const PARTS: u64 = 4;

const NAMES: [&str; 34] = [
    "a",
    "a.b",
    "a-b",
    "a/b",
    "b/c",
    "b/d/e",
    "b/d/f.rs",
    "b.c/d",
    "c d/e f",
    "ö/ü.txt",
    "日本",
    "tab\there",
    "quote\"d",
    "back\\slash",
    "line\nbreak",
    "d/h/x.rs",
    "d/h/y.rs",
    "k/y.rs",
    "k/z",
    "deep/er/and/deep/er/still",
    "-dash",
    "*",
    "[x]",
    "UPPER",
    "upper",
    "s/t",
    "s/t.u/v",
    "long-name-of-a-directory/with-a-long-name/of-a-file.txt",
    "x.log",
    "build/out.log",
    "build/kept",
    "src/main.c",
    "src/lib.c",
    "z",
];

/// All formats that flags can ask for, alone and together.
const FORMATS: [&[&str]; 12] = [
    &[],
    &["--no-color"],
    &["--stat"],
    &["--numstat"],
    &["--shortstat"],
    &["--name-only"],
    &["--name-status"],
    &["--stat", "--shortstat"],
    &["--numstat", "--stat"],
    &["--numstat", "--shortstat", "--stat"],
    &["--stat", "--name-only"],
    &["--name-status", "--shortstat", "--numstat"],
];

/// What `git` says, and does not write down.
fn git(scratch: &Scratch, args: &[&str]) -> String {
    let output = support::run(scratch.git_command(args).env("GIT_OPTIONAL_LOCKS", "0"));
    // git before 2.44 forgets this line break.
    String::from_utf8_lossy(&output).replace(" | Unmerged ", " | Unmerged\n ")
}

/// Where the two begin to differ.
fn differs(what: &str, ours: &str, theirs: &str) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let at = ours.lines().zip(theirs.lines()).take_while(|(one, other)| one == other).count();
    let [ours, theirs] = [ours, theirs].map(|text| -> Vec<_> { text.lines().skip(at).take(6).collect() });
    Some(format!("{what}, line {at}:\n ours {ours:#?}\n git  {theirs:#?}"))
}

/// Compares status and every diff; what is not the same.
fn compare(scratch: &Scratch, hand: &mut Hand, state: u64) -> Vec<String> {
    scratch.own();
    let mut wrong = Vec::new();
    let mut same = |what: &str, ours: &str, theirs: &str| {
        wrong.extend(differs(what, ours, theirs).map(|words| format!("state {state}, {words}")));
    };
    let expected = git(scratch, &["status", "--porcelain=v1", "--branch", "--ignore-submodules=dirty"]);
    same("status", &hand.status(), &expected);
    for staged in [None, Some("--cached"), Some("--staged")] {
        for format in FORMATS.iter().take(if staged == Some("--staged") { 1 } else { FORMATS.len() }) {
            let flags: Vec<&str> = staged.into_iter().chain(format.iter().copied()).collect();
            let expected = git(scratch, &[&["diff", "--ignore-submodules=dirty"], &flags[..]].concat());
            same(&format!("diff {flags:?}"), &hand.diff(&flags, &[]), &expected);
        }
    }
    wrong
}

/// A repository that is on its way to a state.
struct Making {
    scratch: Scratch,
    dice: Dice,
    /// Files are moved, and end with a newline then: git before 2.44 forgets an unterminated last line when it measures
    /// similarity.
    moves: bool,
}

impl Making {
    fn new(seed: u64) -> Self {
        let scratch = Scratch::new();
        scratch.init();
        Self { scratch, dice: Dice(seed), moves: seed.is_multiple_of(2) }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.scratch.workspace().join(name)
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.dice.roll(sides) == 0
    }

    /// Whatever was there, this is there now, unless something above is no directory.
    fn put(&mut self, name: &str, content: &[u8]) {
        let path = self.at(name);
        if self.clear(&path) {
            fs::write(path, self.ended(content.to_vec())).unwrap();
        }
    }

    fn ended(&self, mut content: Vec<u8>) -> Vec<u8> {
        if self.moves && content.last().is_some_and(|last| *last != b'\n') {
            content.push(b'\n');
        }
        content
    }

    /// Makes room for a file; false where a file stands in the way of its directory.
    fn clear(&mut self, path: &Path) -> bool {
        let root = self.scratch.workspace();
        let above = path.ancestors().skip(1).take_while(|above| *above != root);
        for above in above {
            if above.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                if !self.one_in(3) {
                    return false;
                }
                fs::remove_file(above).unwrap();
            }
        }
        remove(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        true
    }

    fn content(&mut self) -> Vec<u8> {
        match self.dice.roll(14) {
            0 => Vec::new(),
            1 => b"\n".to_vec(),
            2 => (0..self.dice.roll(3000)).map(|_| u8::try_from(self.dice.roll(256)).unwrap()).collect(),
            3 => [self.dice.content().as_bytes(), b"\0\x01binary"].concat(),
            4 => self.dice.content().replace('\n', "\r\n").into_bytes(),
            5 => [self.dice.content().as_bytes(), b"caf\xe9 latin\n"].concat(),
            6 => self.dice.content().trim_end().as_bytes().to_vec(),
            7 => format!("{}\n", "long line ".repeat(self.dice.roll(200))).into_bytes(),
            _ => self.dice.content().into_bytes(),
        }
    }

    /// One random change to the work tree.
    fn change(&mut self) {
        let name = NAMES[self.dice.roll(NAMES.len())];
        let path = self.at(name);
        let file = path.symlink_metadata().ok().filter(fs::Metadata::is_file).and(fs::read(&path).ok());
        match (self.dice.roll(16), file) {
            (0, _) => remove(&path),
            (1 | 2, _) => {
                let content = self.content();
                self.put(name, &content);
            }
            (3, Some(content)) if self.moves => {
                let to = format!("moved/{}", NAMES[self.dice.roll(NAMES.len())]);
                let content = match String::from_utf8(content) {
                    Ok(text) if !text.contains('\0') => self.dice.mutate(&text).into_bytes(),
                    Ok(text) => text.into_bytes(),
                    Err(bytes) => bytes.into_bytes(),
                };
                remove(&path);
                self.put(&to, &content);
            }
            (4, Some(content)) if self.moves => {
                let to = NAMES[self.dice.roll(NAMES.len())];
                remove(&path);
                self.put(to, &content);
            }
            (5, Some(_)) => {
                let mode = if self.one_in(2) { 0o755 } else { 0o644 };
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            }
            (6, _) => {
                let target = ["a", "../outside/canary", "nowhere", "b/d"][self.dice.roll(4)];
                if self.clear(&path) {
                    symlink(target, &path).unwrap();
                }
            }
            (7, _) => {
                // A directory where a file was.
                let content = self.content();
                self.put(&format!("{name}/inner"), &content);
            }
            (8, Some(mut content)) => {
                content.extend_from_slice(b"appended");
                fs::write(&path, self.ended(content)).unwrap();
            }
            (9, Some(content)) => {
                let changed = String::from_utf8_lossy(&content).replace("\r\n", "\n");
                fs::write(&path, changed).unwrap();
            }
            (_, Some(content)) => match String::from_utf8(content) {
                Ok(text) => {
                    let text = self.dice.mutate(&text);
                    fs::write(&path, self.ended(text.into_bytes())).unwrap();
                }
                Err(bytes) => fs::write(&path, self.ended([bytes.as_bytes(), b"!"].concat())).unwrap(),
            },
            _ => {
                let content = self.content();
                self.put(name, &content);
            }
        }
    }

    fn changes(&mut self, most: usize) {
        for _ in 0..self.dice.roll(most) {
            self.change();
        }
    }

    /// A command that may fail: not every path can be added in every state.
    fn try_git(&self, args: &[&str]) {
        let _ = self.scratch.git_command(args).output().unwrap();
    }

    /// Some of what was changed goes into the index, in one of the ways that there are.
    fn stage(&mut self) {
        for _ in 0..=self.dice.roll(4) {
            let name = NAMES[self.dice.roll(NAMES.len())];
            let literal = format!(":(literal){name}");
            match self.dice.roll(8) {
                0 => self.try_git(&["add", "-A"]),
                1 => self.try_git(&["rm", "-q", "--cached", "--", &literal]),
                2 => self.try_git(&["add", "-N", "--", &literal]),
                3 => self.try_git(&["add", "-N", "."]),
                4 => self.try_git(&["add", "-u"]),
                5 => self.try_git(&["update-index", "--chmod=+x", "--", name]),
                _ => self.try_git(&["add", "-A", "--", &literal]),
            }
        }
    }

    fn commit(&self) {
        self.try_git(&["commit", "-q", "--allow-empty", "-m", "a commit"]);
    }

    fn ignores(&mut self) {
        for place in [".gitignore", "b/.gitignore", ".git/info/exclude"] {
            if self.one_in(3) {
                let rules = [
                    "*.log\n",
                    "build/\n",
                    "!kept\n",
                    "/a\n",
                    "k/*\n!k/z\n",
                    "**/deep\n",
                    "\\*\n",
                    "moved\n",
                ];
                let text: String =
                    (0..self.dice.roll(4)).map(|_| rules[self.dice.roll(rules.len())]).collect();
                self.put(place, text.as_bytes());
            }
        }
    }

    fn attributes(&mut self) {
        let rules = [
            "* text=auto\n",
            "*.rs diff=python\n",
            "*.c -diff\n",
            "a* binary\n",
            "*.log diff\n",
            "k/* text eol=crlf\n",
            "z ident\n",
            "* -text\n",
        ];
        let text: String = (0..=self.dice.roll(3)).map(|_| rules[self.dice.roll(rules.len())]).collect();
        self.put(".gitattributes", text.as_bytes());
    }

    /// Two branches that do not agree, in the middle of being merged.
    fn conflict(&mut self) {
        self.try_git(&["add", "-A"]);
        self.commit();
        self.try_git(&["checkout", "-q", "-b", "other"]);
        self.changes(20);
        self.try_git(&["add", "-A"]);
        self.commit();
        self.try_git(&["checkout", "-q", "main"]);
        self.changes(20);
        self.try_git(&["add", "-A"]);
        self.commit();
        let how = [&["merge", "-q", "other"][..], &["cherry-pick", "other"], &["rebase", "-q", "other"]];
        let how = how[self.dice.roll(how.len())];
        self.try_git(how);
    }

    fn submodule(&mut self) {
        let place = self.at("sub");
        remove(&place);
        fs::create_dir(&place).unwrap();
        let inside = |args: &[&str]| support::run(&mut support::git_in(&place, args));
        inside(&["init", "-q", "-b", "main"]);
        inside(&["commit", "-q", "--allow-empty", "-m", "one"]);
        self.try_git(&["add", "sub"]);
        if self.one_in(2) {
            self.commit();
        }
        let inside = |args: &[&str]| support::run(&mut support::git_in(&place, args));
        match self.dice.roll(5) {
            0 => drop(inside(&["commit", "-q", "--allow-empty", "-m", "two"])),
            1 => {
                inside(&["commit", "-q", "--allow-empty", "-m", "two"]);
                inside(&["pack-refs", "--all"]);
            }
            2 => remove(&place.join(".git")),
            3 => remove(&place),
            _ => drop(inside(&["checkout", "-q", "--detach"])),
        }
    }
}

fn remove(path: &Path) {
    if path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        fs::remove_dir_all(path).unwrap();
    } else {
        let _ = fs::remove_file(path);
    }
}

/// The state of this number.
fn state(number: u64) -> Vec<String> {
    let mut making = Making::new(number);
    if making.one_in(4) {
        making.attributes();
    }
    if making.one_in(6) {
        let name = NAMES[making.dice.roll(NAMES.len())];
        making.put(name, b"first\n");
    }
    for name in NAMES {
        if making.one_in(2) {
            let content = making.content();
            making.put(name, &content);
        }
    }
    let first = making.dice.roll(20);
    if first > 1 {
        making.try_git(&["add", "-A"]);
        making.commit();
    } else if first == 1 {
        making.stage();
    }
    if making.one_in(3) {
        making.ignores();
    }
    if making.one_in(8) {
        let odd = making.scratch.workspace().join(OsStr::from_bytes(b"not \xff utf-8"));
        fs::write(odd, "x\n").unwrap();
    }
    match making.dice.roll(8) {
        0 => making.conflict(),
        1 => making.submodule(),
        2 => making.try_git(&["checkout", "-q", "--detach"]),
        3 => making.try_git(&["checkout", "-q", "-b", "ein-größerer/zweig"]),
        4 => making.try_git(&["update-index", "--index-version", "4"]),
        5 => making.try_git(&["gc", "-q"]),
        _ => {}
    }
    making.changes(14);
    making.stage();
    making.changes(10);
    let mut hand = making.scratch.hand();
    let mut wrong = compare(&making.scratch, &mut hand, number);
    wrong.extend(preview_of_add(&making.scratch, &mut hand, number));
    wrong
}

/// What a reviewer is shown of `git add .` is what git then has staged, and it fails as the adding does.
fn preview_of_add(scratch: &Scratch, hand: &mut Hand, state: u64) -> Option<String> {
    let add = Operation::Git(Git::Add { paths: support::paths(&["."]) });
    // Entries without a content, and the sides of a conflict, are in no tree: then there is nothing to compare with.
    let before = scratch.git_command(&["write-tree"]).output().unwrap();
    scratch.own();
    let id = hand.begin(&add, support::DEADLINE, true);
    let shown = hand.outcome(id);
    match (shown, hand.call(&add)) {
        (Ok(OpResult::Git(shown)), Ok(_)) => {
            scratch.own();
            let before = before.status.success().then(|| String::from_utf8(before.stdout).unwrap())?;
            let staged = git(scratch, &["diff", "--cached", "--ignore-submodules=dirty", before.trim()]);
            let (_, diff) = shown.output.split_once("\n\n").unwrap_or_default();
            // libgit2 keeps some line endings that git makes into others, and what is shown is what git does.
            let [diff, staged] = [diff, &staged].map(|text| {
                let lines = text.lines().filter(|line| !line.starts_with("index "));
                lines.map(|line| line.trim_end_matches('\r')).collect::<Vec<_>>().join("\n")
            });
            differs("git add .", &diff, &staged).map(|words| format!("state {state}, {words}"))
        }
        (Err(shown), Err(added)) if shown == added => None,
        (shown, added) => {
            Some(format!("state {state}, git add .: shown {:?}, added {:?}", shown.err(), added.err()))
        }
    }
}

fn part(number: u64) {
    let only: Option<u64> = std::env::var("COFFERDAM_STATE").ok().and_then(|only| only.parse().ok());
    let mine = (0..STATES).filter(|each| each % PARTS == number && only.is_none_or(|only| only == *each));
    let wrong: Vec<String> = mine.flat_map(state).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}

#[test]
fn generated_states_equal_those_of_git_first_part() {
    part(0);
}

#[test]
fn generated_states_equal_those_of_git_second_part() {
    part(1);
}

#[test]
fn generated_states_equal_those_of_git_third_part() {
    part(2);
}

#[test]
fn generated_states_equal_those_of_git_fourth_part() {
    part(3);
}
