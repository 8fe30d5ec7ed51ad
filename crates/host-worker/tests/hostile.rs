//! Hostile repositories (G1, G3, G4, G6 to G9): each ends in a refusal, a safe result or by the deadline; nothing outside of
//! the workspace is read or changed, nothing that was planted runs, and the next call works.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use operations::{Git, Operation, Reason};
use support::{DEADLINE, Hand, SHORT, Scratch, fifo, fingerprint, git_in, paths, run};

/// A repository with one commit and one change that is not staged.
fn repository() -> Scratch {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write("a", "one\n");
    scratch.commit_all("first");
    scratch.write("a", "two\n");
    scratch.write("b", "new\n");
    scratch
}

fn all_operations() -> [Operation; 7] {
    [
        Operation::Git(Git::Status),
        Operation::Git(Git::Diff { flags: Vec::new(), paths: Vec::new() }),
        Operation::Git(Git::Diff { flags: vec![operations::GitDiffFlag::Cached], paths: Vec::new() }),
        Operation::Git(support::log(&["--stat"], "HEAD", &["a"])),
        Operation::Git(support::show(&[], "HEAD", &[])),
        Operation::Git(Git::Add { paths: paths(&["@project"]) }),
        Operation::Git(Git::Commit { message: "hostile".to_owned() }),
    ]
}

/// What does not hang is given time, so that a loaded machine fails nothing.
fn attack(scratch: &Scratch, host_worker: &mut Hand, what: &str) -> Vec<operations::Outcome> {
    attack_within(DEADLINE, scratch, host_worker, what)
}

/// Runs every operation, whatever it answers; then looks for damage and leaks.
fn attack_within(
    deadline: Duration,
    scratch: &Scratch,
    host_worker: &mut Hand,
    what: &str,
) -> Vec<operations::Outcome> {
    let outside = fingerprint(&scratch.outside());
    let outcomes: Vec<_> = all_operations()
        .iter()
        .map(|operation| {
            let id = host_worker.begin(operation, deadline, false);
            host_worker.outcome(id)
        })
        .collect();
    assert_eq!(fingerprint(&scratch.outside()), outside, "{what}: changed something outside");
    let answers = format!("{outcomes:?}");
    assert!(!answers.contains("the canary sings"), "{what}: leaked: {answers}");
    assert!(!answers.contains(scratch.dir.path().to_str().unwrap()), "{what}: a host path: {answers}");
    assert!(!answers.contains("root:x:0"), "{what}: leaked: {answers}");
    outcomes
}

fn refused(outcomes: &[operations::Outcome], words: &str, what: &str) {
    for outcome in outcomes {
        let failure = outcome.as_ref().expect_err(what);
        assert_eq!(failure.reason, Reason::SandboxViolation, "{what}: {failure:?}");
        assert!(failure.message.contains(words), "{what}: {failure:?}");
    }
}

/// A second repository, outside, of the same owner.
fn outside_repository(scratch: &Scratch) {
    let outside = scratch.outside();
    run(&mut git_in(&outside, &["init", "-q"]));
    run(&mut git_in(&outside, &["add", "canary"]));
    run(&mut git_in(&outside, &["commit", "-q", "-m", "the canary sings"]));
    run(Command::new("chown").arg("-R").arg(format!("{0}:{0}", scratch.uid)).arg(&outside));
}

#[test]
fn redirected_repositories_are_refused() {
    type Plant = fn(&Path, &Path);
    let cases: [(&str, Plant, &str); 7] = [
        (
            "file",
            |git, outside| {
                fs::remove_dir_all(git).unwrap();
                fs::write(git, format!("gitdir: {}/.git\n", outside.display())).unwrap();
            },
            "@project/.git is a file instead of a directory",
        ),
        (
            "link",
            |git, outside| {
                fs::remove_dir_all(git).unwrap();
                symlink(outside.join(".git"), git).unwrap();
            },
            "@project/.git is a symbolic link",
        ),
        (
            "commondir",
            |git, outside| {
                fs::write(git.join("commondir"), format!("{}/.git\n", outside.display())).unwrap();
            },
            "commondir",
        ),
        (
            "gitdir",
            |git, outside| {
                fs::write(git.join("gitdir"), format!("{}/.git\n", outside.display())).unwrap();
            },
            "gitdir",
        ),
        (
            "worktree",
            |git, outside| {
                run(Command::new("git")
                    .args(["config", "-f"])
                    .arg(git.join("config"))
                    .arg("core.worktree")
                    .arg(outside));
            },
            "core.worktree",
        ),
        (
            "worktree config",
            |git, outside| {
                let config = git.join("config");
                run(Command::new("git")
                    .args(["config", "-f"])
                    .arg(&config)
                    .args(["extensions.worktreeConfig", "true"]));
                let text = format!("[core]\nworktree = {}\n", outside.display());
                fs::write(git.join("config.worktree"), text).unwrap();
            },
            "@project/.git/config.worktree is set to another work tree",
        ),
        (
            "bare",
            |git, _| {
                run(Command::new("git")
                    .args(["config", "-f"])
                    .arg(git.join("config"))
                    .args(["core.bare", "true"]));
            },
            "a bare repository",
        ),
    ];
    for (what, plant, words) in cases {
        let scratch = repository();
        outside_repository(&scratch);
        plant(&scratch.workspace().join(".git"), &scratch.outside());
        scratch.own();
        let outcomes = attack(&scratch, &mut scratch.host_worker(), what);
        refused(&outcomes, words, what);
    }
}

#[test]
fn a_bare_repository_as_workspace_is_not_opened() {
    let scratch = Scratch::new();
    run(&mut git_in(&scratch.workspace(), &["init", "-q", "--bare"]));
    scratch.own();
    let failure = scratch.host_worker().git(Git::Status).unwrap_err();
    assert_eq!(failure.reason, Reason::PreconditionFailed);
    assert_eq!(failure.message, "@project is not a git repository (there is no @project/.git)");
}

#[test]
fn links_in_the_repository_lead_to_nothing() {
    // A link at the file, or in place of a directory; pointing at what exists outside.
    for place in [
        "index",
        "HEAD",
        "refs/heads/main",
        "logs/HEAD",
        "logs/refs/heads/main",
        "objects",
        "refs",
        "logs",
        "objects/26",
    ] {
        for target in ["outside/canary", "outside"] {
            let scratch = repository();
            let at = scratch.workspace().join(".git").join(place);
            let _ = fs::remove_file(&at).or_else(|_| fs::remove_dir_all(&at));
            symlink(scratch.dir.path().join(target), &at).unwrap();
            scratch.own();
            attack(&scratch, &mut scratch.host_worker(), &format!("{place} -> {target}"));
        }
    }
}

#[test]
fn configuration_outside_is_not_read() {
    let scratch = repository();
    outside_repository(&scratch);
    let outside = scratch.outside();
    let git = scratch.workspace().join(".git");
    // An object that only the outside repository has.
    let blob = String::from_utf8(run(&mut git_in(&outside, &["rev-parse", "HEAD:canary"]))).unwrap();
    fs::create_dir_all(git.join("objects/info")).unwrap();
    fs::write(git.join("objects/info/alternates"), format!("{}/.git/objects\n", outside.display())).unwrap();
    run(&mut git_in(
        &scratch.workspace(),
        &["update-index", "--add", "--cacheinfo", &format!("100644,{},stolen", blob.trim())],
    ));
    fs::write(outside.join("config"), "[core]\nexcludesFile = /nowhere\n[user]\nname = canary\n").unwrap();
    fs::write(outside.join("excludes"), "b\n").unwrap();
    fs::write(outside.join("attributes"), "* binary\n").unwrap();
    let config = git.join("config");
    for (key, file) in
        [("include.path", "config"), ("core.excludesFile", "excludes"), ("core.attributesFile", "attributes")]
    {
        run(Command::new("git").args(["config", "-f"]).arg(&config).arg(key).arg(outside.join(file)));
    }
    scratch.own();
    let mut host_worker = scratch.host_worker();
    let status = host_worker.status();
    assert!(status.contains("?? b\n"), "excludesFile outside was read: {status}");
    assert!(host_worker.diff(&[], &["a"]).contains("+two\n"), "attributesFile outside was read");
    attack(&scratch, &mut host_worker, "alternates and configuration");
}

#[test]
fn a_fifo_anywhere_ends_by_the_deadline() {
    for place in [
        ".git/index",
        ".git/config",
        ".git/shallow",
        ".git/HEAD",
        ".git/packed-refs",
        ".git/refs/heads/main",
        ".git/info/exclude",
        ".git/info/attributes",
        ".git/info/grafts",
        ".git/objects/info/alternates",
        ".gitignore",
        ".gitattributes",
        "d/.gitignore",
        "b",
    ] {
        let scratch = repository();
        scratch.write("d/file", "x\n");
        let at = scratch.workspace().join(place);
        let _ = fs::remove_file(&at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fifo(&at);
        scratch.own();
        let mut host_worker = scratch.host_worker();
        attack_within(SHORT, &scratch, &mut host_worker, place);
        fs::remove_file(&at).unwrap();
        let id = host_worker.begin(
            &Operation::Git(Git::Diff { flags: Vec::new(), paths: Vec::new() }),
            DEADLINE,
            false,
        );
        // Without its HEAD or index the repository is another, but nothing hangs any longer.
        let next = host_worker.outcome(id);
        assert!(next.is_ok() || next.unwrap_err().reason == Reason::PreconditionFailed, "{place}");
    }
}

fn loose_object(scratch: &Scratch, spec: &str) -> std::path::PathBuf {
    let id = scratch.git(&["rev-parse", spec]);
    let path = scratch.workspace().join(format!(".git/objects/{}/{}", &id[..2], id[2..].trim()));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

#[test]
fn damaged_and_inflating_objects_are_bounded() {
    let scratch = repository();
    let object = loose_object(&scratch, "HEAD:a");
    let whole = fs::read(&object).unwrap();
    for keep in [0, 1, 2, whole.len() / 2, whole.len() - 1] {
        fs::write(&object, &whole[..keep]).unwrap();
        attack_within(SHORT, &scratch, &mut scratch.host_worker(), &format!("object cut at {keep}"));
    }
    // 2 GiB of zeros behind a header that promises as much.
    let bomb = "import sys,zlib;z=zlib.compressobj(9);w=sys.stdout.buffer.write;n=2<<30;w(z.compress(b'blob %d\\0'%n));\
                c=bytes(1<<24);[w(z.compress(c)) for _ in range(n>>24)];w(z.flush())";
    fs::write(&object, run(Command::new("python3").args(["-c", bomb]))).unwrap();
    attack_within(SHORT, &scratch, &mut scratch.host_worker(), "zlib bomb");
}

#[test]
fn huge_sparse_files_are_bounded() {
    for (place, size) in [(".git/index", 4_u64 << 30), (".git/config", 4 << 30), ("huge", 100 << 30)] {
        let scratch = repository();
        let path = scratch.workspace().join(place);
        let mut file = fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        file.seek(SeekFrom::End(0)).unwrap();
        file.set_len(size).unwrap();
        scratch.own();
        let mut host_worker = scratch.host_worker();
        attack_within(SHORT, &scratch, &mut host_worker, place);
        if place == "huge" {
            assert_eq!(host_worker.add(&["huge"]).unwrap_err().reason, Reason::WriteLimit);
            assert!(host_worker.status().ends_with("?? huge\n"));
        }
    }
}

#[test]
fn submodules_and_nested_repositories_are_not_opened() {
    let scratch = repository();
    outside_repository(&scratch);
    scratch.git(&["checkout", "-q", "."]);
    let head = scratch.git(&["rev-parse", "HEAD"]);
    scratch.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{},sub", head.trim())]);
    let gitdir = format!("gitdir: {}/.git\n", scratch.outside().display());
    scratch.write(".gitmodules", "[submodule \"sub\"]\npath = sub\nurl = /nowhere\n");
    scratch.write("sub/.git", &gitdir);
    scratch.write("nested/.git", &gitdir);
    let mut host_worker = scratch.host_worker();
    attack(&scratch, &mut host_worker, "nested");
    let outside_head =
        String::from_utf8(run(&mut git_in(&scratch.outside(), &["rev-parse", "HEAD"]))).unwrap();
    assert!(!scratch.git(&["ls-files", "-s"]).contains(outside_head.trim()), "recorded the outside HEAD");
}

#[test]
fn planted_programs_do_not_run() {
    let scratch = repository();
    let mark = scratch.workspace().join("RAN");
    let script = format!("#!/bin/sh\ntouch {} /workspace/RAN\ncat\n", mark.display());
    let program = scratch.write("evil.sh", script);
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    for hook in [
        "pre-commit",
        "commit-msg",
        "prepare-commit-msg",
        "post-commit",
        "post-index-change",
        "reference-transaction",
    ] {
        let at = scratch.workspace().join(".git/hooks").join(hook);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::copy(&program, at).unwrap();
    }
    let evil = program.to_str().unwrap();
    for key in [
        "core.fsmonitor",
        "core.editor",
        "core.pager",
        "core.sshCommand",
        "core.askPass",
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "gpg.program",
        "merge.evil.driver",
    ] {
        run(Command::new("git")
            .args(["config", "-f"])
            .arg(scratch.workspace().join(".git/config"))
            .args([key, evil]));
    }
    run(Command::new("git")
        .args(["config", "-f"])
        .arg(scratch.workspace().join(".git/config"))
        .args(["commit.gpgSign", "true"]));
    scratch.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    scratch.own();
    let mut host_worker = scratch.host_worker();
    let outcomes = attack(&scratch, &mut host_worker, "planted programs");
    // A file that a filter would change is not added, so there is nothing to commit.
    let failed: Vec<&str> = outcomes
        .iter()
        .filter_map(|outcome| outcome.as_ref().err())
        .map(|failure| failure.message.as_str())
        .collect();
    assert!(
        matches!(failed[..], [add, commit] if add.contains("a (filter=evil)") && commit.contains("nothing to commit")),
        "{outcomes:?}"
    );
    assert!(!mark.exists(), "something that was planted ran");
    // The plants are live: the git command runs them.
    scratch.write("a", "three\n");
    let _ = scratch.git_command(&["commit", "-a", "-m", "x"]).output().unwrap();
    assert!(mark.exists(), "this test plants nothing");
}

#[test]
fn a_workspace_with_links_to_the_host_reveals_nothing() {
    let scratch = repository();
    symlink("/etc/passwd", scratch.workspace().join("absolute")).unwrap();
    symlink("../../outside/canary", scratch.workspace().join("relative")).unwrap();
    symlink("/proc/self/environ", scratch.workspace().join("proc")).unwrap();
    scratch.own();
    let mut host_worker = scratch.host_worker();
    let outcomes = attack(&scratch, &mut host_worker, "links");
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(scratch.git(&["cat-file", "blob", "HEAD:absolute"]), "/etc/passwd");
    // A tracked directory becomes a link to one outside with the same names.
    scratch.write("d/canary", "mine\n");
    host_worker.add(&["d"]).unwrap();
    host_worker.commit("d").unwrap();
    fs::remove_dir_all(scratch.workspace().join("d")).unwrap();
    symlink(scratch.outside(), scratch.workspace().join("d")).unwrap();
    attack(&scratch, &mut host_worker, "directory exchanged with a link");
    assert_eq!(host_worker.add(&["d/canary"]).unwrap_err().reason, Reason::SandboxViolation);
}

#[test]
fn an_index_cut_or_changed_anywhere_is_read_or_refused() {
    let scratch = Scratch::new();
    scratch.init();
    for name in ["a", "d/b", "d/e/c"] {
        scratch.write(name, "x\n");
    }
    scratch.commit_all("one");
    let place = scratch.workspace().join(".git/index");
    let whole = fs::read(&place).unwrap();
    let mut host_worker = scratch.host_worker();
    let mut refused = 0;
    let cuts = (0..whole.len()).step_by(13).map(|at| whole[..at].to_vec());
    let changes = (0..whole.len()).step_by(7).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x5a;
        bytes
    });
    for bytes in cuts.chain(changes) {
        fs::write(&place, bytes).unwrap();
        for command in [Git::Status, Git::Add { paths: paths(&["a"]) }] {
            if let Err(failure) = host_worker.git(command) {
                assert_eq!(failure.reason, Reason::PreconditionFailed, "{failure:?}");
                refused += 1;
            }
        }
    }
    assert!(refused > 20, "{refused} were refused");
    fs::write(&place, whole).unwrap();
    scratch.own();
    assert_eq!(host_worker.status(), "## main\n");
}

#[test]
fn another_owners_repository_is_refused() {
    let scratch = repository();
    run(Command::new("chown").args(["-R", "0:0"]).arg(scratch.workspace().join(".git")));
    run(Command::new("chmod").args(["-R", "a+rwX"]).arg(scratch.workspace().join(".git")));
    let failure = scratch.host_worker().git(Git::Status).unwrap_err();
    assert_eq!(failure.message, "refused: @project/.git or the workspace belongs to another user");
}

#[test]
fn an_index_lock_is_reported() {
    let scratch = repository();
    fs::File::create(scratch.workspace().join(".git/index.lock")).unwrap().write_all(b"").unwrap();
    let failure = scratch.host_worker().add(&["b"]).unwrap_err();
    assert_eq!(failure.reason, Reason::PreconditionFailed);
    assert!(failure.message.contains("locked by another git process"), "{failure:?}");
}
