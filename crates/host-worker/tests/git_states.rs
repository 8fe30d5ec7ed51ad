//! Compares the facts of `status` and `diff` with the `git` command, and the effects of patches, in generated repositories.
//! They are the same in every run.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use operations::Git;
use support::facts::{self, Facts};
use support::{Dice, Hand, Scratch};

const STATES: u64 = 40;

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

/// The one submodule that there may be.
const SUBMODULE: &str = "sub";

/// What `git` says, and does not write down.
fn git(scratch: &Scratch, args: &[&str]) -> String {
    let output = support::run(scratch.git_command(args).env("GIT_OPTIONAL_LOCKS", "0"));
    String::from_utf8_lossy(&output).into_owned()
}

/// Whether an untracked directory is shown that has the name of a tracked file is not the same in each case.
fn without_replacements(facts: Facts) -> Facts {
    let file = |path: &str| match path.strip_suffix('/') {
        Some(file) => Some(file.to_owned()),
        None => path.strip_suffix("/\"").map(|file| format!("{file}\"")),
    };
    let tracked: BTreeSet<String> =
        facts.iter().filter(|(_, said)| said != "??").map(|(path, _)| path.clone()).collect();
    facts.into_iter().filter(|(path, _)| file(path).is_none_or(|file| !tracked.contains(&file))).collect()
}

/// Compares status and diffs; what is not the same.
fn compare(scratch: &Scratch, host_worker: &mut Hand, state: u64) -> Vec<String> {
    scratch.own();
    let mut wrong = Vec::new();
    let mut same = |what: &str, ours: &Facts, theirs: &Facts| {
        if ours != theirs {
            let [more, less] =
                [(ours, theirs), (theirs, ours)].map(|(a, b)| a.difference(b).collect::<Vec<_>>());
            wrong.push(format!("state {state}, {what}: only ours {more:?}, only git's {less:?}"));
        }
    };
    let theirs =
        git(scratch, &["status", "--porcelain=v1", "--branch", "--no-renames", "--ignore-submodules=dirty"]);
    let [ours, theirs] = [&host_worker.status(), &theirs].map(|text| facts::status(text));
    let [ours, theirs] = [ours, theirs].map(without_replacements);
    same("status", &ours, &theirs);
    for cached in [&[][..], &["--cached"]] {
        let flags = |format| [cached, &[format]].concat();
        let theirs = |format| {
            git(
                scratch,
                &[&["diff", "--no-renames", "--ignore-submodules=dirty"][..], &flags(format)].concat(),
            )
        };
        let [ours, theirs] = [host_worker.diff(&flags("--name-status"), &[]), theirs("--name-status")]
            .map(|text| facts::name_status(&text));
        same(&format!("{cached:?}"), &ours, &theirs);
    }
    wrong
}

/// A repository that is on its way to a state.
struct Making {
    scratch: Scratch,
    dice: Dice,
    /// Contents are text, so that a patch can have them.
    text: bool,
}

impl Making {
    fn new(seed: u64) -> Self {
        let scratch = Scratch::new();
        scratch.init();
        Self { scratch, dice: Dice(seed), text: seed.is_multiple_of(2) }
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
            fs::write(path, content).unwrap();
        }
    }

    /// Makes way for a file; false where a file stands in the way of its directory.
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
            2 | 3 | 5 if self.text => self.dice.content().into_bytes(),
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
            (3, Some(content)) => {
                let to = format!("moved/{}", NAMES[self.dice.roll(NAMES.len())]);
                let content = match String::from_utf8(content) {
                    Ok(text) if !text.contains('\0') => self.dice.mutate(&text).into_bytes(),
                    Ok(text) => text.into_bytes(),
                    Err(bytes) => bytes.into_bytes(),
                };
                remove(&path);
                self.put(&to, &content);
            }
            (4, Some(content)) => {
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
                fs::write(&path, content).unwrap();
            }
            (9, Some(content)) => {
                let changed = String::from_utf8_lossy(&content).replace("\r\n", "\n");
                fs::write(&path, changed).unwrap();
            }
            (_, Some(content)) => match String::from_utf8(content) {
                Ok(text) => {
                    let text = self.dice.mutate(&text);
                    fs::write(&path, text).unwrap();
                }
                Err(bytes) => fs::write(&path, [bytes.as_bytes(), b"!"].concat()).unwrap(),
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
            match self.dice.roll(6) {
                0 => self.try_git(&["add", "-A"]),
                1 => self.try_git(&["rm", "-q", "--cached", "--", &literal]),
                2 => self.try_git(&["add", "-u"]),
                3 => self.try_git(&["update-index", "--chmod=+x", "--", name]),
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

fn state(number: u64) -> Vec<String> {
    let mut making = Making::new(number);
    if !making.text && making.one_in(2) {
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
    let mut host_worker = making.scratch.host_worker();
    let mut wrong = compare(&making.scratch, &mut host_worker, number);
    if making.text {
        wrong.extend(
            patches(&making.scratch, &mut host_worker).err().map(|what| format!("state {number}, {what}")),
        );
    }
    wrong.extend(
        previews(&making.scratch, &mut host_worker, making.text)
            .err()
            .map(|what| format!("state {number}, {what}")),
    );
    wrong
}

/// An index that is changed beside the repository's own.
struct Beside<'s> {
    scratch: &'s Scratch,
    file: PathBuf,
}

impl<'s> Beside<'s> {
    /// With what the repository's own has.
    fn copied(scratch: &'s Scratch) -> Self {
        let beside = Self { scratch, file: scratch.dir.path().join("index-beside") };
        let own = scratch.workspace().join(".git/index");
        if own.exists() {
            fs::copy(own, &beside.file).unwrap();
        } else {
            remove(&beside.file);
        }
        beside
    }

    fn git(&self, args: &[&str], input: &str) -> Result<String, String> {
        let mut command = self.scratch.git_command(args);
        command.env("GIT_INDEX_FILE", &self.file).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A command that failed early did not read it.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let [said, words] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        if output.status.success() { Ok(said) } else { Err(format!("git {args:?}: {words}")) }
    }

    fn files(&self) -> String {
        self.git(&["ls-files", "-s"], "").unwrap()
    }

    /// `patch` makes `after` of what is here, and its reverse brings this back.
    fn applies(&self, patch: &str, after: &str) -> Result<(), String> {
        let before = self.files();
        if patch.is_empty() {
            return if before == after { Ok(()) } else { Err("an empty patch".to_owned()) };
        }
        for (reverse, expected) in [(&[][..], after), (&["-R"], &before)] {
            let apply = [&["apply", "--cached", "--whitespace=nowarn", "-p1"], reverse].concat();
            self.git(&apply, patch).map_err(|words| format!("{words}\n{patch}"))?;
            if self.files() != expected {
                return Err(format!("{apply:?} gives\n{}instead of\n{expected}of\n{patch}", self.files()));
            }
        }
        Ok(())
    }
}

/// What `diff` and `diff --cached` say, `git apply` does, and takes back.
fn patches(scratch: &Scratch, host_worker: &mut Hand) -> Result<(), String> {
    if ["-u", SUBMODULE].iter().any(|which| !git(scratch, &["ls-files", which]).is_empty()) {
        return Ok(());
    }
    scratch.own();
    let after = Beside::copied(scratch);
    after.git(&["add", "-u"], "").unwrap();
    let after = after.files();
    Beside::copied(scratch).applies(&host_worker.diff(&[], &[]), &after)?;

    let staged = Beside::copied(scratch).files();
    let head = Beside::copied(scratch);
    if head.git(&["read-tree", "HEAD"], "").is_err() {
        head.git(&["read-tree", "--empty"], "").unwrap();
    }
    head.applies(&host_worker.diff(&["--cached"], &[]), &staged)
}

/// What a reviewer is shown of `git add .` is what is staged then, and it fails as the adding does.
fn previews(scratch: &Scratch, host_worker: &mut Hand, text: bool) -> Result<(), String> {
    let add = Git::Add { paths: support::paths(&["."]) };
    let merged = git(scratch, &["ls-files", "-u"]).is_empty();
    let before = Beside::copied(scratch);
    scratch.own();
    match (host_worker.preview(add.clone()), host_worker.git(add)) {
        (Ok(shown), Ok(_)) if text && merged => {
            let (_, patch) = shown.output.split_once("\n\n").unwrap_or_default();
            before.applies(patch, &git(scratch, &["ls-files", "-s"]))
        }
        (Ok(_), Ok(_)) => Ok(()),
        (Err(shown), Err(added)) if shown == added => Ok(()),
        (shown, added) => Err(format!("git add .: shown {:?}, added {:?}", shown.err(), added.err())),
    }
}

#[test]
fn generated_states_have_the_facts_of_git() {
    let only: Option<u64> = std::env::var("COFFERDAM_STATE").ok().and_then(|only| only.parse().ok());
    let wrong: Vec<String> =
        (0..STATES).filter(|each| only.is_none_or(|only| only == *each)).flat_map(state).collect();
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong[..wrong.len().min(20)].join("\n"));
}
