//! status, diff, add and commit: the same facts as the `git` command has of the same repository.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use operations::{Git, Reason};
use support::{Hand, Scratch, facts, paths};

/// Status, and what changed in the index and in the work tree.
fn compare(scratch: &Scratch, host_worker: &mut Hand, what: &str) {
    scratch.own();
    let git = |args: &[&str]| String::from_utf8_lossy(&scratch.git_bytes(args)).into_owned();
    let status = git(&["status", "--porcelain=v1", "--branch", "--no-renames"]);
    assert_eq!(facts::status(&host_worker.status()), facts::status(&status), "status: {what}");
    for cached in [&[][..], &["--cached"]] {
        let mut both = |format: &'static str| {
            let flags = [cached, &[format]].concat();
            let theirs = git(&[&["diff", "--no-renames"], &flags[..]].concat());
            (host_worker.diff(&flags, &[]), theirs)
        };
        let (ours, theirs) = both("--name-status");
        assert_eq!(facts::name_status(&ours), facts::name_status(&theirs), "{cached:?}: {what}");
        let (ours, theirs) = both("--numstat");
        let ours = facts::numbers(&ours);
        assert!(ours.is_subset(&facts::numbers(&theirs)), "{cached:?}, {what}: {ours:?}\n{theirs}");
    }
}

fn lines(from: u32, to: u32) -> String {
    (from..to).flat_map(|n| ["line ".to_owned(), n.to_string(), " of the file\n".to_owned()]).collect()
}

#[test]
fn output_has_the_facts_of_git() {
    let scratch = Scratch::new();
    scratch.init();
    let mut host_worker = scratch.host_worker();
    compare(&scratch, &mut host_worker, "unborn, empty");

    scratch.write("a.txt", lines(0, 60));
    scratch.write("src/deep/b.rs", "fn main() {\n    one();\n}\n\nfn other() {\n    two();\n}\n");
    scratch.write("with space.txt", "x\n");
    scratch.write("tab\tand \"quote\".txt", "x\n");
    scratch.write("ünï.txt", "ü\n");
    scratch.write("empty", "");
    scratch.write("binary", b"\0\x01\x02binary\xff");
    scratch.write("noeol", "no newline");
    scratch.write("latin1.txt", b"caf\xe9\n");
    compare(&scratch, &mut host_worker, "unborn, untracked");
    scratch.git(&["add", "."]);
    compare(&scratch, &mut host_worker, "unborn, all added");
    scratch.commit_all("first");
    compare(&scratch, &mut host_worker, "clean");

    scratch.write("a.txt", lines(0, 20) + "changed\n" + &lines(22, 61));
    scratch.write("src/deep/b.rs", "fn main() {\n    one();\n    more();\n}\n\nfn other() {\n}\n");
    scratch.write("with space.txt", "y\n");
    scratch.write("tab\tand \"quote\".txt", "y\n");
    scratch.write("ünï.txt", "ä\n");
    scratch.write("empty", "no longer\n");
    scratch.write("binary", b"\0\x01changed");
    scratch.write("noeol", "no newline either");
    scratch.write("latin1.txt", b"caf\xe8\n");
    scratch.write("new dir/file", "new\n");
    scratch.write("untracked", "new\n");
    compare(&scratch, &mut host_worker, "modified");
    scratch.git(&["add", "a.txt", "binary", "noeol"]);
    scratch.write("a.txt", lines(3, 70));
    compare(&scratch, &mut host_worker, "staged and modified again");
    scratch.commit_all("second");

    fs::set_permissions(scratch.workspace().join("noeol"), fs::Permissions::from_mode(0o755)).unwrap();
    compare(&scratch, &mut host_worker, "mode changed");
    scratch.write("noeol", "and content\n");
    compare(&scratch, &mut host_worker, "mode and content changed");
    fs::remove_file(scratch.workspace().join("empty")).unwrap();
    fs::remove_file(scratch.workspace().join("a.txt")).unwrap();
    symlink("src/deep/b.rs", scratch.workspace().join("a.txt")).unwrap();
    compare(&scratch, &mut host_worker, "deleted and changed to a link");
    scratch.commit_all("third");

    scratch.git(&["mv", "src/deep/b.rs", "src/c.rs"]);
    scratch.git(&["mv", "noeol", "eol"]);
    compare(&scratch, &mut host_worker, "renamed");
    scratch.write("src/c.rs", "fn main() {\n    one();\n    more();\n}\n\nfn other() {\n    five();\n}\n");
    compare(&scratch, &mut host_worker, "renamed and modified");
    scratch.git(&["add", "-A"]);
    compare(&scratch, &mut host_worker, "renamed with changes");
    scratch.git(&["rm", "-q", "--cached", "with space.txt"]);
    compare(&scratch, &mut host_worker, "removed from the index only");
    scratch.commit_all("fourth");

    scratch.write(".gitignore", "*.log\ntarget/\n");
    scratch.write("x.log", "ignored\n");
    scratch.write("target/debug/out", "ignored\n");
    scratch.write("only-ignored/y.log", "ignored\n");
    compare(&scratch, &mut host_worker, "ignored files");
    let long = format!("a/{}/{}/file.txt", "long-directory-name".repeat(3), "another-one".repeat(4));
    scratch.write(&long, lines(0, 300));
    scratch.write("big", lines(0, 1000));
    scratch.git(&["add", "."]);
    compare(&scratch, &mut host_worker, "long names and large numbers");
    scratch.git(&["checkout", "-q", "--detach"]);
    compare(&scratch, &mut host_worker, "detached");
}

#[test]
fn entries_with_marks_are_as_git_sees_them() {
    let scratch = Scratch::new();
    scratch.init();
    for name in ["assumed", "skipped", "gone"] {
        scratch.write(name, "1\n");
    }
    scratch.commit_all("one");
    scratch.git(&["update-index", "--assume-unchanged", "assumed"]);
    scratch.git(&["update-index", "--skip-worktree", "skipped", "gone"]);
    scratch.write("assumed", "changed\n");
    scratch.write("skipped", "changed\n");
    fs::remove_file(scratch.workspace().join("gone")).unwrap();
    let mut host_worker = scratch.host_worker();
    compare(&scratch, &mut host_worker, "marked");
    host_worker.add(&["."]).unwrap();
    compare(&scratch, &mut host_worker, "marked, after adding all");
}

#[test]
fn intent_to_add_is_not_committed() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("a", "1\n");
    scratch.commit_all("one");
    scratch.write("announced", "x\n");
    scratch.write("empty", "");
    scratch.git(&["add", "-N", "announced", "empty"]);
    scratch.write("a", "2\n");
    let mut host_worker = scratch.host_worker();
    assert_eq!(host_worker.status(), "## main\n M a\n A announced\n A empty\n");
    assert_eq!(host_worker.commit("two").unwrap_err().reason, Reason::PreconditionFailed);
    host_worker.add(&["a"]).unwrap();
    host_worker.commit("two").unwrap();
    assert_eq!(scratch.git(&["ls-tree", "-r", "--name-only", "HEAD"]), "a\n");
    assert_eq!(host_worker.status(), "## main\n A announced\n A empty\n");
}

#[test]
fn a_mark_in_the_index_hides_nothing_that_is_committed() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("a", "one\n");
    scratch.commit_all("one");
    scratch.write("a", "two\n");
    scratch.write("b", "new\n");
    scratch.git(&["add", "-A"]);
    scratch.git(&["update-index", "--assume-unchanged", "a", "b"]);
    let mut host_worker = scratch.host_worker();
    assert_eq!(host_worker.status(), "## main\nM  a\nA  b\n");
    let shown = host_worker.preview(Git::Commit { message: "two".to_owned() }).unwrap().output;
    assert!(shown.contains("\n+two\n") && shown.contains("\n+new\n"), "{shown}");
}

#[test]
fn attributes_of_the_agent_hide_no_text_from_a_reviewer() {
    for place in [".gitattributes", ".git/info/attributes"] {
        let scratch = Scratch::new();
        scratch.init();
        scratch.write("a", "one\n");
        scratch.commit_all("one");
        scratch.write("a", "other\n");
        scratch.write("b", "new\n");
        scratch.write(place, "* -diff\n");
        scratch.own();
        let mut host_worker = scratch.host_worker();
        let binary = "Binary files a/a and b/a differ\n";
        let seen = host_worker.diff(&[], &["a"]);
        assert!(seen.contains(binary), "{place}: the agent sees what git shows: {seen}");
        let is_whole = |shown: &str| shown.contains("\n-one\n+other\n") && shown.contains("\n+new\n");
        let shown = host_worker.preview(Git::Add { paths: paths(&["a", "b"]) }).unwrap().output;
        assert!(is_whole(&shown), "{place}: {shown}");
        host_worker.add(&["a", "b"]).unwrap();
        assert!(host_worker.diff(&["--cached"], &["a"]).contains(binary), "{place}");
        let shown = host_worker.preview(Git::Commit { message: "two".to_owned() }).unwrap().output;
        assert!(is_whole(&shown), "{place}: {shown}");
    }
}

#[test]
fn branches_with_upstreams() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("a", "1\n");
    scratch.commit_all("one");
    scratch.git(&["branch", "base"]);
    scratch.git(&["branch", "-q", "--set-upstream-to=base"]);
    let mut host_worker = scratch.host_worker();
    let mut compare = |what: &str| {
        assert_eq!(host_worker.status(), scratch.git(&["status", "--porcelain=v1", "--branch"]), "{what}");
    };
    compare("even");
    scratch.write("a", "2\n");
    scratch.commit_all("two");
    compare("ahead");
    scratch.git(&["checkout", "-q", "base"]);
    scratch.write("b", "3\n");
    scratch.commit_all("three");
    scratch.git(&["checkout", "-q", "main"]);
    compare("diverged");
    scratch.git(&["branch", "-q", "-D", "base"]);
    compare("gone");
}

#[test]
fn conflicts_in_status() {
    let scratch = Scratch::new();
    scratch.init();
    for name in ["both", "ours-gone", "theirs-gone"] {
        scratch.write(name, "base\n");
    }
    scratch.commit_all("base");
    scratch.git(&["checkout", "-q", "-b", "other"]);
    scratch.write("both", "theirs\n");
    scratch.write("added", "theirs\n");
    scratch.write("ours-gone", "theirs\n");
    fs::remove_file(scratch.workspace().join("theirs-gone")).unwrap();
    scratch.commit_all("theirs");
    scratch.git(&["checkout", "-q", "main"]);
    scratch.write("both", "ours\n");
    scratch.write("added", "ours\n");
    scratch.write("theirs-gone", "ours\n");
    fs::remove_file(scratch.workspace().join("ours-gone")).unwrap();
    scratch.commit_all("ours");
    assert!(!scratch.git_command(&["merge", "-q", "other"]).output().unwrap().status.success());
    scratch.own();
    let mut host_worker = scratch.host_worker();
    assert_eq!(host_worker.status(), scratch.git(&["status", "--porcelain=v1", "--branch"]));
    let unmerged: String = ["added", "both", "ours-gone", "theirs-gone"]
        .map(|name| format!("* Unmerged path {name}\n"))
        .concat();
    assert_eq!(host_worker.diff(&[], &[]), unmerged);
    assert_eq!(host_worker.diff(&["--cached"], &[]), unmerged);
    assert_eq!(host_worker.diff(&["--name-status"], &["both"]), "U\tboth\n");
    // What a reviewer is shown of adding it is the difference from our side.
    let preview = host_worker.preview(Git::Add { paths: paths(&["both"]) }).unwrap();
    assert!(preview.output.starts_with("add 'both'\n\ndiff --git a/both b/both\n"), "{}", preview.output);
    assert!(
        preview.output.contains("\n ours\n") && preview.output.contains("\n+theirs\n"),
        "{}",
        preview.output
    );
    let refused = host_worker.commit("no").unwrap_err();
    assert_eq!(refused.reason, Reason::PreconditionFailed);
    assert!(refused.message.contains("merge is in progress"), "{refused:?}");
}

#[test]
fn submodules_are_at_their_commits_and_linked_work_trees_are_refused() {
    let scratch = Scratch::new();
    scratch.init();
    let place = scratch.workspace().join("sub");
    fs::create_dir(&place).unwrap();
    let inside = |args: &[&str]| drop(support::run(&mut support::git_in(&place, args)));
    inside(&["init", "-q", "-b", "main"]);
    inside(&["commit", "-q", "--allow-empty", "-m", "one"]);
    scratch.write(".gitmodules", "[submodule \"sub\"]\npath = sub\nurl = ./sub\n");
    scratch.git(&["add", "sub", ".gitmodules"]);
    let mut host_worker = scratch.host_worker();
    compare(&scratch, &mut host_worker, "added");
    scratch.commit_all("one");
    compare(&scratch, &mut host_worker, "clean");
    inside(&["commit", "-q", "--allow-empty", "-m", "two"]);
    compare(&scratch, &mut host_worker, "at another commit");
    inside(&["pack-refs", "--all"]);
    compare(&scratch, &mut host_worker, "at another commit, packed");
    let failure = host_worker.add(&["sub"]).unwrap_err();
    assert_eq!(failure.reason, Reason::InvalidArgument, "{failure:?}");
    scratch.git(&["submodule", "--quiet", "absorbgitdirs", "sub"]);
    compare(&scratch, &mut host_worker, "its repository in ours");
    assert!(host_worker.diff(&[], &["sub"]).contains("\n+Subproject commit "));
    scratch.write("sub/inside", "changed\n");
    assert_eq!(host_worker.status(), "## main\n M sub\n", "what is inside is not looked at");
    scratch.git(&["add", "sub"]);
    assert_eq!(host_worker.status(), "## main\nM  sub\n", "another commit of it is staged");
    assert!(host_worker.diff(&["--cached"], &[]).contains("\n+Subproject commit "));

    scratch.git(&["worktree", "add", "-q", "tree"]);
    fs::rename(scratch.workspace().join(".git"), scratch.outside().join("git")).unwrap();
    fs::rename(scratch.workspace().join("tree/.git"), scratch.workspace().join(".git")).unwrap();
    let failure = host_worker.git(Git::Status).unwrap_err();
    assert_eq!(failure.reason, Reason::SandboxViolation);
    assert!(failure.message.contains("@project/.git is a file instead of a directory"), "{failure:?}");
}

#[test]
fn diff_is_limited_to_paths_and_bytes() {
    let scratch = Scratch::new();
    scratch.init();
    for name in ["a", "d/a", "d/b", "*"] {
        scratch.write(name, "1\n");
    }
    scratch.commit_all("one");
    for name in ["a", "d/a", "d/b", "*"] {
        scratch.write(name, lines(0, 50));
    }
    let mut host_worker = scratch.host_worker();
    assert_eq!(host_worker.diff(&["--name-only"], &["d"]), "d/a\nd/b\n");
    assert_eq!(host_worker.diff(&["--name-only"], &["*"]), "*\n");
    assert_eq!(host_worker.diff(&["--name-only"], &["@project"]), "*\na\nd/a\nd/b\n");

    let whole = host_worker.diff(&[], &[]);
    host_worker.bounds.max_output_bytes = 100;
    let cut = host_worker.git(Git::Diff { flags: Vec::new(), paths: Vec::new() }).unwrap();
    assert_eq!(cut.output, whole[..100]);
    assert!(cut.truncated);
    assert_eq!(cut.omitted_bytes, whole.len() as u64 - 100);

    for (refused, reason) in [
        ("@state", Reason::InvalidArgument),
        ("@pkg/x", Reason::InvalidArgument),
        (".git/config", Reason::SandboxViolation),
        ("d/.GIT", Reason::SandboxViolation),
    ] {
        let failure = host_worker.git(Git::Diff { flags: Vec::new(), paths: paths(&[refused]) }).unwrap_err();
        assert_eq!(failure.reason, reason, "{refused}");
    }
}

#[test]
fn add_and_commit() {
    let scratch = Scratch::new();
    scratch.init();
    let mut host_worker = scratch.host_worker();
    assert_eq!(host_worker.commit("x").unwrap_err().reason, Reason::PreconditionFailed);

    scratch.write("a.txt", "one\n");
    scratch.write("d/b.txt", "two\n");
    scratch.write("d/run.sh", "#!/bin/sh\n");
    fs::set_permissions(scratch.workspace().join("d/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let add = Git::Add { paths: paths(&["d", "a.txt"]) };
    let preview = host_worker.preview(add).unwrap();
    assert_eq!(
        host_worker.status(),
        "## No commits yet on main\n?? a.txt\n?? d/\n",
        "a preview stages nothing"
    );
    assert_eq!(host_worker.add(&["d", "a.txt"]).unwrap().output, "");
    let staged = host_worker.diff(&["--cached"], &[]);
    assert_eq!(preview.output, format!("add 'a.txt'\nadd 'd/b.txt'\nadd 'd/run.sh'\n\n{staged}"));
    assert_eq!(host_worker.status(), scratch.git(&["status", "--porcelain", "-b"]));

    let preview = host_worker.preview(Git::Commit { message: "no".to_owned() }).unwrap();
    assert_eq!(preview.output, staged);

    let result = host_worker.commit("  \nSubject\nof it\n\nBody\n\n\n").unwrap();
    assert_eq!(result.commit, scratch.git(&["rev-parse", "HEAD"]).trim());
    let short = &result.commit[..7];
    assert_eq!(
        result.output,
        format!(
            "[main (root-commit) {short}] Subject of it\n 3 files changed, 3 insertions(+), 0 deletions(-)\n \
             create mode 100644 a.txt\n create mode 100644 d/b.txt\n create mode 100755 d/run.sh\n"
        )
    );
    assert_eq!(
        scratch.git(&["log", "--format=%an <%ae>|%B", "-1"]),
        "Cofferdam agent <agent@cofferdam.invalid>|Subject\nof it\n\nBody\n\n"
    );
    let reflog = scratch.git(&["log", "-g", "--format=%gs"]);
    assert!(reflog.starts_with("commit (initial): Subject"), "{reflog}");
    scratch.git(&["fsck", "--strict"]);

    fs::remove_file(scratch.workspace().join("d/b.txt")).unwrap();
    scratch.write("a.txt", "one\ntwo\n");
    assert_eq!(host_worker.add(&["d/b.txt", "a.txt"]).unwrap().output, "");
    let result = host_worker.commit("Second").unwrap();
    let short = &result.commit[..7];
    assert_eq!(
        result.output,
        format!(
            "[main {short}] Second\n 2 files changed, 1 insertion(+), 1 deletion(-)\n delete mode 100644 d/b.txt\n"
        )
    );
    assert_eq!(host_worker.commit("Third").unwrap_err().reason, Reason::PreconditionFailed);

    scratch.git(&["checkout", "-q", "--detach"]);
    scratch.git(&["mv", "a.txt", "c.txt"]);
    let result = host_worker.commit("Fourth").unwrap();
    assert!(result.output.starts_with("[detached HEAD "), "{}", result.output);
    assert!(
        result
            .output
            .ends_with("\n 1 file changed, 0 insertions(+), 0 deletions(-)\n rename a.txt => c.txt\n")
    );
    assert_eq!(host_worker.commit(" \n\t").unwrap_err().reason, Reason::InvalidArgument);
    assert_eq!(host_worker.status(), "## HEAD (no branch)\n");
}

/// What a reviewer is shown of something long says to the byte how much is missing.
#[test]
fn a_preview_that_is_cut_counts_the_missing_bytes() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("a.txt", lines(0, 500) + "é\u{10348}\n");
    scratch.own();
    let mut host_worker = scratch.host_worker();
    let add = Git::Add { paths: paths(&["."]) };
    let commit = Git::Commit { message: "x".to_owned() };
    for operation in [add, commit] {
        let mut preview = |most: u64| {
            host_worker.bounds.max_output_bytes = most;
            host_worker.preview(operation.clone()).unwrap()
        };
        let whole = preview(1 << 20);
        assert!(!whole.truncated && whole.output.ends_with("+é\u{10348}\n"), "{}", whole.output);
        let length = whole.output.len() as u64;
        for most in [1, 100, 5_000, length - 4, length - 1, length] {
            let cut = preview(most);
            assert!(whole.output.starts_with(&cut.output) && cut.output.len() as u64 <= most);
            assert_eq!(cut.output.len() as u64 + cut.omitted_bytes, length, "{most}");
            assert_eq!(cut.truncated, most < length);
        }
        scratch.git(&["add", "."]);
        scratch.own();
    }
}

#[test]
fn unknown_path_differs_from_an_unchanged_path() {
    let scratch = Scratch::new();
    scratch.init();
    for name in ["kept", "dir/gone", "unstaged"] {
        scratch.write(name, "x\n");
    }
    scratch.commit_all("first");
    fs::remove_file(scratch.workspace().join("dir/gone")).unwrap();
    scratch.git(&["rm", "-q", "--cached", "unstaged"]);
    scratch.write("new", "x\n");
    scratch.own();
    let mut host_worker = scratch.host_worker();
    let failure = |answer: Result<operations::GitResult, operations::ToolFailure>| {
        let failure = answer.unwrap_err();
        assert_eq!(failure.reason, Reason::NotFound, "{failure:?}");
        failure.message
    };
    for path in ["nowhere", "dir/nowhere", "kept/x", "@project/nowhere"] {
        let named = paths(&[path]);
        let words = format!("pathspec '{}' did not match any files", path.trim_start_matches("@project/"));
        let diff = Git::Diff { flags: vec![], paths: named };
        assert_eq!(failure(host_worker.git(diff)), words);
        assert_eq!(failure(host_worker.git(support::log(&[], "HEAD", &[path]))), words);
        assert_eq!(failure(host_worker.git(support::log(&[], "HEAD..HEAD", &["kept", path]))), words);
    }
    // A file has no changes and is there, in the work tree, the index or the commit, or was there once.
    for path in ["kept", "new", "unstaged", "dir", ".", "@project"] {
        host_worker.git(Git::Diff { flags: vec![], paths: paths(&[path]) }).unwrap();
        host_worker.git(support::log(&[], "HEAD..HEAD", &[path])).unwrap();
    }
    assert!(host_worker.log(&[], "HEAD", &["dir/gone"]).contains("first"));
}

#[test]
fn files_that_cannot_be_added_are_refused() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write(".gitignore", "*.log\n");
    scratch.write("a.log", "x");
    scratch.write("good", "x");
    scratch.write("nested/file", "x");
    support::run(&mut support::git_in(&scratch.workspace().join("nested"), &["init", "-q"]));
    support::fifo(scratch.workspace().join("pipe"));
    symlink(scratch.outside(), scratch.workspace().join("link")).unwrap();
    scratch.own();
    let mut host_worker = scratch.host_worker();
    for (path, reason, words) in [
        ("a.log", Reason::PreconditionFailed, "ignored by one of your .gitignore files:\na.log"),
        ("missing", Reason::NotFound, "pathspec 'missing' did not match any files"),
        ("nested", Reason::InvalidArgument, "separate repository"),
        ("pipe", Reason::SandboxViolation, "special"),
        ("link/canary", Reason::SandboxViolation, "pathspec 'link/canary' is beyond a symbolic link"),
        (".git/config", Reason::SandboxViolation, "refused"),
        ("@state", Reason::InvalidArgument, "beneath @project"),
    ] {
        let failure = host_worker.add(&["good", path]).unwrap_err();
        assert_eq!(failure.reason, reason, "{path}: {failure:?}");
        assert!(failure.message.contains(words), "{path}: {failure:?}");
    }
    assert_eq!(scratch.git(&["ls-files"]), "", "a refused call stages nothing");

    fs::remove_file(scratch.workspace().join("pipe")).unwrap();
    let all = host_worker.add(&["@project"]).unwrap();
    assert_eq!(all.output, "warning: not adding embedded git repository: nested/\n");
    assert_eq!(scratch.git(&["ls-files"]), ".gitignore\ngood\nlink\n");
    let link = scratch.git(&["ls-files", "-s", "link"]);
    assert!(link.starts_with("120000 "), "links are stored, never followed: {link}");
}

#[test]
fn an_outcome_that_no_frame_holds_fails_its_call_and_not_the_host_worker() {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("a", "x\n".repeat(1_000_000));
    scratch.commit_all("large");
    scratch.write("a", "y\n".repeat(1_000_000));
    let mut host_worker = scratch.host_worker();
    host_worker.bounds.max_output_bytes = 16 << 20;
    let failure = host_worker.git(Git::Diff { flags: Vec::new(), paths: Vec::new() }).unwrap_err();
    assert_eq!(failure.reason, Reason::ReadLimit, "{failure:?}");
    host_worker.bounds.max_output_bytes = 1 << 20;
    assert_eq!(host_worker.diff(&["--name-only"], &[]), "a\n");
}
