//! The table of GIT.md, tried: status, diff and add under each attribute and each setting, in each version of the index,
//! beside the git command. A difference is in [`DIFFERENCES`], or the test fails; so it does where one is gone.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use support::Scratch;
use support::facts;

/// Attributes of a file.
const ATTRIBUTES: [&str; 22] = [
    "",
    "text",
    "-text",
    "text=auto",
    "eol=crlf",
    "eol=lf",
    "text eol=crlf",
    "text=auto eol=crlf",
    "text=auto eol=lf",
    "crlf",
    "-crlf",
    "crlf=input",
    "ident",
    "ident text=auto",
    "binary",
    "-diff",
    "diff=python",
    "merge=union",
    "whitespace=trailing-space",
    "export-ignore",
    "export-subst",
    "conflict-marker-size=9",
];

/// Name of each content, the text that is committed without attributes, and the text in the work tree afterwards.
const CONTENTS: [(&str, &str, &str); 12] = [
    ("touched", "one\ntwo\n", "one\ntwo\n"),
    ("touched CRLF", "one\r\ntwo\r\n", "one\r\ntwo\r\n"),
    ("changed", "one\ntwo\n", "one\ntwo\nthree\n"),
    ("LF to CRLF", "one\ntwo\n", "one\r\ntwo\r\n"),
    ("CRLF to LF", "one\r\ntwo\r\n", "one\ntwo\n"),
    ("LF to mixed", "one\ntwo\n", "one\r\ntwo\n"),
    ("mixed to LF", "one\r\ntwo\n", "one\ntwo\n"),
    ("lone CR", "one\ntwo\n", "one\rtwo\n"),
    ("binary", "one\0\r\n", "two\0\r\n"),
    ("identified", "a $Id$ b\n", "a $Id: 0123456789012345678901234567890123456789 $ b\n"),
    ("identified by another", "a $Id$ b\n", "a $Id: file,v 1.2 $ b\n"),
    ("empty", "one\n", ""),
];

/// Settings of the repository.
const SETTINGS: [&str; 34] = [
    "",
    "core.autocrlf=true",
    "core.autocrlf=input",
    "core.eol=crlf",
    "core.eol=lf",
    "core.safecrlf=true",
    "core.safecrlf=false",
    "core.fileMode=false",
    "core.symlinks=false",
    "core.ignoreCase=true",
    "core.trustctime=false",
    "core.checkStat=minimal",
    "core.quotePath=false",
    "core.precomposeUnicode=true",
    "core.protectNTFS=false",
    "core.attributesFile=more-attributes",
    "core.excludesFile=more-ignored",
    "core.untrackedCache=true",
    "core.preloadIndex=true",
    "core.bigFileThreshold=4",
    "core.compression=9",
    "core.abbrev=12",
    "core.whitespace=cr-at-eol",
    "status.showUntrackedFiles=no",
    "status.showUntrackedFiles=all",
    "status.relativePaths=false",
    "status.renames=copies",
    "diff.renames=copies",
    "diff.noprefix=true",
    "diff.mnemonicPrefix=true",
    "diff.algorithm=patience",
    "add.ignoreErrors=true",
    "feature.manyFiles=true",
    "index.version=4",
];

/// Known differences from the git command, by setting, content and attributes. GIT.md explains them.
const DIFFERENCES: [&str; 12] = [
    "core.autocrlf=input: diff of LF to CRLF with '-diff': M, git -",
    "core.autocrlf=input: diff of LF to mixed with '-diff': M, git -",
    "core.autocrlf=true: diff of LF to CRLF with '-diff': M, git -",
    "core.autocrlf=true: diff of LF to mixed with '-diff': M, git -",
    "status.showUntrackedFiles=all: status of new/: ??, git -",
    "status.showUntrackedFiles=all: status of new/one: -, git ??",
    "status.showUntrackedFiles=all: status of new/two: -, git ??",
    "status.showUntrackedFiles=no: status of .gitattributes: ??, git -",
    "status.showUntrackedFiles=no: status of ignored: ??, git -",
    "status.showUntrackedFiles=no: status of more-attributes: ??, git -",
    "status.showUntrackedFiles=no: status of more-ignored: ??, git -",
    "status.showUntrackedFiles=no: status of new/: ??, git -",
];
/// Settings that are tried without `COFFERDAM_LONG`, besides those with differences.
const SHORT: usize = 6;

/// The answer about each file, by its path.
type Said = BTreeMap<String, String>;

fn name(attribute: usize, content: usize) -> String {
    format!("{attribute:02}-{content:02}")
}

/// Makes the state under a setting, and returns each difference.
fn differences(setting: &str, version: &str) -> BTreeSet<String> {
    let scratch = Scratch::new();
    scratch.init();
    scratch.git(&["config", "core.autocrlf", "false"]);
    for (attribute, _) in ATTRIBUTES.iter().enumerate() {
        for (content, (_, committed, _)) in CONTENTS.iter().enumerate() {
            scratch.write(&name(attribute, content), committed);
        }
    }
    for path in ["mode", "link-target", "Case"] {
        scratch.write(path, "same\n");
    }
    std::os::unix::fs::symlink("link-target", scratch.workspace().join("link")).unwrap();
    scratch.commit_all("one");
    scratch.git(&["config", "--unset", "core.autocrlf"]);
    let lines =
        ATTRIBUTES.iter().enumerate().map(|(number, attribute)| format!("{number:02}-* {attribute}\n"));
    scratch.write(".gitattributes", lines.collect::<String>());
    scratch.write("more-attributes", "00-* text eol=crlf\n");
    scratch.write("more-ignored", "ignored\n");
    for path in ["ignored", "new/one", "new/two"] {
        scratch.write(path, "new\r\n");
    }
    if let Some((key, value)) = setting.split_once('=') {
        scratch.git(&["config", key, value]);
    }
    scratch.git(&["update-index", "--index-version", version]);
    for (attribute, _) in ATTRIBUTES.iter().enumerate() {
        for (content, (_, _, now)) in CONTENTS.iter().enumerate() {
            scratch.write(&name(attribute, content), now);
        }
    }
    support::run(Command::new("chmod").arg("755").arg(scratch.workspace().join("mode")));
    fs::remove_file(scratch.workspace().join("link")).unwrap();
    scratch.write("link", "link-target");
    scratch.own();

    let mut host_worker = scratch.host_worker();
    let git = |args: &[&str]| {
        let output = support::run(scratch.git_command(args).env("GIT_OPTIONAL_LOCKS", "0"));
        String::from_utf8(output).unwrap()
    };
    let said = |facts: facts::Facts| facts.into_iter().collect::<Said>();
    let mut found = BTreeSet::new();
    let mut compare = |what: &str, ours: Said, theirs: Said| {
        for path in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            let [ours, theirs] = [&ours, &theirs].map(|said| said.get(path).map_or("-", String::as_str));
            if ours != theirs {
                let place = |(attribute, content): (&str, &str)| {
                    let number = |text: &str| text.parse::<usize>().ok();
                    Some(format!(
                        "{} with '{}'",
                        CONTENTS.get(number(content)?)?.0,
                        ATTRIBUTES.get(number(attribute)?)?
                    ))
                };
                let place = path.split_once('-').and_then(place).unwrap_or_else(|| path.clone());
                found.insert(format!("{setting}: {what} of {place}: {ours}, git {theirs}"));
            }
        }
    };
    let theirs = git(&["status", "--porcelain=v1", "--branch", "--no-renames"]);
    compare("status", said(facts::status(&host_worker.status())), said(facts::status(&theirs)));
    let theirs = git(&["diff", "--no-renames", "--name-status"]);
    compare(
        "diff",
        said(facts::name_status(&host_worker.diff(&["--name-status"], &[]))),
        said(facts::name_status(&theirs)),
    );
    // Another index for git, so that both begin with the same.
    let beside = scratch.dir.path().join("index-beside");
    fs::copy(scratch.workspace().join(".git/index"), &beside).unwrap();
    let staged = |index: Option<&std::path::Path>| {
        let mut list = scratch.git_command(&["ls-files", "-s"]);
        index.map(|index| list.env("GIT_INDEX_FILE", index));
        let list = String::from_utf8(support::run(&mut list)).unwrap();
        let split = |line: &str| line.split_once('\t').map(|(id, path)| (path.to_owned(), id.to_owned()));
        list.lines().filter_map(split).collect::<Said>()
    };
    let theirs = scratch.git_command(&["add", "-A"]).env("GIT_INDEX_FILE", &beside).output().unwrap();
    scratch.own();
    let ours = host_worker.add(&["."]);
    let [ours_failed, theirs_failed] = [ours.is_err(), !theirs.status.success()];
    if ours_failed == theirs_failed {
        compare("add", staged(None), staged(Some(&beside)));
    } else {
        let why = ours.err().map_or_else(String::new, |failure| failure.message);
        found.insert(format!("{setting}: add: failed {ours_failed}, git {theirs_failed} {why}"));
    }
    found
}

#[test]
fn each_attribute_and_setting_has_the_effect_of_the_table() {
    let mut found = BTreeSet::new();
    let all = std::env::var_os("COFFERDAM_LONG").is_some();
    let differs = |setting: &str| DIFFERENCES.iter().any(|line| line.split(": ").next() == Some(setting));
    for (number, setting) in SETTINGS.iter().enumerate() {
        if !all && number >= SHORT && !differs(setting) {
            continue;
        }
        found.extend(differences(setting, ["2", "3", "4"][number % 3]));
    }
    let listed: BTreeSet<String> = DIFFERENCES.iter().map(ToString::to_string).collect();
    let [new, gone] =
        [(&found, &listed), (&listed, &found)].map(|(a, b)| a.difference(b).cloned().collect::<Vec<_>>());
    assert!(new.is_empty() && gone.is_empty(), "new:\n{}\ngone:\n{}", new.join("\n"), gone.join("\n"));
}
