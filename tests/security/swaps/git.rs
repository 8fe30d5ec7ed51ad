//! Swaps of content that git stages and commits.

use std::fs;
use std::os::unix::fs::symlink;

use harness::{calls, git};

use super::{Kind, Target, kind};

/// All of them.
pub(super) fn kinds() -> Vec<Kind> {
    fn repository(p: &Target) {
        p.put("f", "first\n");
        p.put("d/g", "first\n");
        p.git(&["init", "-q", "-b", "main"]);
        p.git(&["add", "-A"]);
        p.git(&["commit", "-q", "-m", "first"]);
        p.git(&["branch", "other"]);
    }
    fn staged(p: &Target) {
        repository(p);
        p.put("f", "GOOD\n");
        p.git(&["add", "f"]);
    }
    fn changed(p: &Target) {
        repository(p);
        p.put("f", "GOOD\n");
        p.put("d/g", "GOOD\n");
        p.put("d/new", "GOOD\n");
    }
    let commit = || calls::git_commit("consented");
    vec![
        kind("commit: something else staged", staged, commit, |p| {
            p.put("f", "EVIL\n");
            p.git(&["add", "f"]);
        }),
        kind("commit: more staged", staged, commit, |p| {
            p.put("h", "EVIL\n");
            p.git(&["add", "h"]);
        }),
        kind("commit: a mode staged", staged, commit, |p| p.git(&["update-index", "--chmod=+x", "d/g"])),
        kind(
            "commit: less staged",
            |p| {
                staged(p);
                p.put("h", "GOOD\n");
                p.git(&["add", "h"]);
            },
            commit,
            |p| p.git(&["reset", "-q", "h"]),
        ),
        kind("commit: on another branch", staged, commit, |p| p.put(".git/HEAD", "ref: refs/heads/other\n")),
        kind("commit: on a new branch", staged, commit, |p| p.put(".git/HEAD", "ref: refs/heads/new\n")),
        kind("commit: on no branch", staged, commit, |p| {
            p.git(&["update-ref", "--no-deref", "HEAD", "main"]);
        }),
        kind("commit: after another commit", staged, commit, |p| {
            p.git(&[
                "update-ref",
                "refs/heads/main",
                git(&p.workspace, &["commit-tree", "-m", "x", "-p", "main", "main^{tree}"]).trim(),
            ]);
        }),
        kind("add .: a file", changed, || calls::git_add(&["."]), |p| p.replace("f", "EVIL\n")),
        kind("add .: disguised", changed, || calls::git_add(&["."]), |p| p.disguise("f", "EVIL\n")),
        kind("add .: a new file", changed, || calls::git_add(&["."]), |p| p.put("d/newer", "EVIL\n")),
        kind(
            "add .: one less",
            changed,
            || calls::git_add(&["."]),
            |p| fs::remove_file(p.at("d/new")).unwrap(),
        ),
        kind("add DIR: a file", changed, || calls::git_add(&["d"]), |p| p.put("d/g", "EVIL\n")),
        kind("add DIR: a new file", changed, || calls::git_add(&["d"]), |p| p.put("d/newer", "EVIL\n")),
        kind(
            "add DIR: a link now",
            changed,
            || calls::git_add(&["d"]),
            |p| {
                fs::remove_file(p.at("d/g")).unwrap();
                symlink("EVIL", p.at("d/g")).unwrap();
            },
        ),
        kind("add FILE: content", changed, || calls::git_add(&["f"]), |p| p.put("f", "EVIL\n")),
        kind("add FILE: mode", changed, || calls::git_add(&["f"]), |p| p.chmod("f", 0o755)),
        kind(
            "add FILE: attributes",
            |p| {
                changed(p);
                p.put("f", "$Id$\n");
            },
            || calls::git_add(&["f"]),
            |p| {
                p.put("f", "$Id: EVIL $\n");
                p.put(".gitattributes", "f -ident\n");
            },
        ),
        kind(
            "add FILE: line ends by an attribute",
            |p| {
                changed(p);
                p.put("f", "GOOD\r\n");
            },
            || calls::git_add(&["f"]),
            |p| p.put(".gitattributes", "f text eol=lf\n"),
        ),
    ]
}
