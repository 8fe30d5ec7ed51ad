//! P4: names that act on terminals, on parsers and on line-wise output; and ignore files made to be costly.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use harness::v1::{self, DialectCall};
use harness::{Daemon, RunHandle, calls};
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::looking::{ask, assert_modest, enter, glob, grep, list, look, read};

/// Names that a file system takes, each once as it is. None is looked at as a pattern, a flag or a shell's word.
const NAMES: [&str; 15] = [
    "line\nbreak",
    "return\rcarriage",
    "\u{1b}[2Jcleared",
    "\u{1b}]0;title\u{7}",
    "tab\tbed",
    "\u{202e}txt.exe",
    "zero\u{200b}width",
    "-rf",
    "--output=x",
    "*",
    "[a-z]?{b,c}",
    "back\\slash",
    "$(touch made)",
    "'quo\"ted'",
    " spaces ",
];

/// What a dialect makes of a call for the model to read.
async fn rendered(run: &mut RunHandle, dialect: &str, name: &str, arguments: &str) -> String {
    let call = DialectCall {
        dialect: dialect.to_owned(),
        name: name.to_owned(),
        arguments_json: arguments.to_owned(),
    };
    run.call(call).await.unwrap().rendered
}

#[tokio::test]
async fn p4_hostile_names_are_shown_in_full_and_without_effect() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let long = "n".repeat(255);
    let mut names: Vec<&str> = NAMES.to_vec();
    names.push(&long);
    for name in &names {
        fs::write(workspace.join(name), format!("needle in {name:?}\n")).unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    names.sort_unstable();

    let listed = list(run, ask::list("@project")).await;
    let found: Vec<_> = listed.entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(found.iter().filter(|name| **name != "probe").copied().collect::<Vec<_>>(), names);
    let paths: Vec<_> = names.iter().map(|name| format!("@project/{name}")).collect();
    let mut globbed = glob(run, ask::glob("*")).await.paths;
    globbed.retain(|path| path != "@project/probe");
    assert_eq!(globbed, paths);
    let matched = grep(run, ask::grep("@project", "needle")).await.matches;
    assert_eq!(matched.iter().map(|found| found.path.clone()).collect::<Vec<_>>(), paths);
    for name in &names {
        // Each is a name, whatever else it looks like.
        assert_eq!(read(run, ask::read(name)).await.content, format!("needle in {name:?}\n"));
        let failure = look(run, calls::read(&format!("{name}.not"))).await.unwrap_err();
        assert!(["NOT_FOUND", "SANDBOX_VIOLATION"].contains(&failure.reason.as_str()), "{failure:?}");
    }
    // What a model or a terminal reads has one line for each.
    for (dialect, name, arguments) in [
        ("native", "list_files", "{\"path\":\".\"}"),
        ("native", "grep", "{\"pattern\":\"needle\"}"),
        ("fs", "fs.list", "{\"path\":\"@project\"}"),
    ] {
        let text = rendered(run, dialect, name, arguments).await;
        // JSON has its own escapes; what turns text around is none of them.
        let turns = |character| character == '\u{202e}' && dialect == "native";
        let acting = |character: char| (character.is_control() && character != '\n') || turns(character);
        let raw = text.chars().find(|character| acting(*character));
        assert!(raw.is_none(), "{dialect} {name} shows {raw:?} raw: {text:?}");
        assert!(!text.contains("line\nbreak"), "{dialect} {name}: {text}");
    }
    assert_modest(&inside);
}

#[tokio::test]
async fn p4_names_that_are_not_utf8_are_shown_escaped_and_below_them_is_searched() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let stray = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    fs::write(workspace.join(stray(b"caf\xe9")), "needle\n").unwrap();
    fs::write(workspace.join(stray(b"caf\\xe9")), "needle\n").unwrap();
    fs::create_dir(workspace.join(stray(b"d\xff\xfe"))).unwrap();
    fs::write(workspace.join(stray(b"d\xff\xfe")).join(stray(b"\x80in")), "needle\n").unwrap();
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;

    let deep = list(run, v1::ListRequest { depth: Some(2), ..ask::list("@project") }).await;
    let mut found: Vec<_> = deep.entries.iter().map(|entry| entry.path.as_str()).collect();
    found.retain(|path| *path != "@project/probe");
    let expected =
        ["@project/caf\\xe9", "@project/caf\\xe9", "@project/d\\xff\\xfe", "@project/d\\xff\\xfe/\\x80in"];
    assert_eq!(found, expected, "two that look alike are two");
    let matched = grep(run, ask::grep("@project", "needle")).await.matches;
    assert_eq!(matched.len(), 3, "{matched:?}");
    assert_eq!(glob(run, ask::glob("**/*in")).await.paths, ["@project/d\\xff\\xfe/\\x80in"]);
    // Paths are UTF-8: the escaped form names the file that is really called so, or nothing.
    assert_eq!(read(run, ask::read("caf\\xe9")).await.content, "needle\n");
    let failure = look(run, calls::list("d\\xff\\xfe")).await.unwrap_err();
    assert_eq!(failure.reason, "NOT_FOUND");
    assert_modest(&inside);
}

/// Distinct patterns, each costly, as many as fit into so many bytes.
fn patterns(bytes: usize, make: impl Fn(usize) -> String) -> String {
    let mut text = String::new();
    for number in 0.. {
        let line = make(number);
        if text.len() + line.len() > bytes {
            break;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[tokio::test]
async fn p4_ignore_files_stay_within_their_bounds() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("seen", "needle\n")]);
    let classes = |number: usize| format!("**/*[!a-y]{number}*?[b-z]*{{a,b}}*.o");
    let stars = |number: usize| format!("{}{number}b", "*a".repeat(60));
    let words = |number: usize| format!("w{number}");
    // Larger than what counts; full of what is costly; and one in each of many levels.
    let mut at = workspace.clone();
    for (level, text) in [
        patterns(64 << 20, words),
        patterns(64 << 10, classes),
        patterns(64 << 10, stars),
        patterns(64 << 10, words),
    ]
    .iter()
    .cycle()
    .take(40)
    .enumerate()
    {
        let text = if level > 0 { &text[..text.len().min(64 << 10)] } else { text };
        fs::write(at.join(".gitignore"), text).unwrap();
        fs::write(at.join(".ignore"), &text[..text.len().min(64 << 10)]).unwrap();
        fs::write(at.join(format!("file-{level}")), "needle\n").unwrap();
        at.push(format!("level-{level}"));
        fs::create_dir(&at).unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    let everything = v1::GlobRequest { include_ignored: false, ..ask::glob("file-*") };
    let found = glob(run, everything).await;
    assert_eq!(found.paths.len(), 40, "{}", found.hint);
    let found = grep(run, ask::grep("@project", "needle")).await;
    assert_eq!(found.matches.len(), 41, "{}", found.hint);
    assert_modest(&inside);
}

#[tokio::test]
async fn p4_ignore_file_that_is_not_a_regular_file_is_skipped() {
    let daemon = Daemon::start().await;
    let secret = daemon.workspace("outside", &[("rules", "*\n")]);
    let workspace =
        daemon.workspace("w", &[("a/seen", "needle\n"), ("b/seen", "needle\n"), ("c/seen", "needle\n")]);
    mkfifoat(CWD, workspace.join(".gitignore"), Mode::RWXU).unwrap();
    fs::create_dir(workspace.join("a/.gitignore")).unwrap();
    symlink(secret.join("rules"), workspace.join("b/.gitignore")).unwrap();
    symlink("../c/seen", workspace.join("c/.ignore")).unwrap();
    File::create(workspace.join("c/.gitignore")).unwrap().set_len(1 << 40).unwrap();
    let mut inside = enter(&daemon, &workspace).await;
    let found = grep(&mut inside.run, ask::grep("@project", "needle")).await;
    let places: Vec<_> = found.matches.iter().map(|found| found.path.as_str()).collect();
    assert_eq!(places, ["@project/a/seen", "@project/b/seen", "@project/c/seen"]);
    assert_modest(&inside);
}
