//! Files that git changes on their way, names of any bytes, and formats of repositories: compared with the git command, whose
//! filters run here and never in the host worker.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod support;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;

use operations::{Git, Reason};
use support::{Scratch, paths};

/// Filter that replaces an added file by a pointer, as Git LFS does.
const LFS_CLEAN: &str = r"t=$(mktemp); cat > $t; printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %s\n' $(sha256sum < $t | cut -d' ' -f1) $(wc -c < $t); rm $t";

/// Runs git with the filters `lfs` and `upper`, which the repository's own configuration does not have.
fn filtered(scratch: &Scratch, args: &[&str]) -> String {
    let lfs = format!("filter.lfs.clean={LFS_CLEAN}");
    let filters =
        ["-c", lfs.as_str(), "-c", "filter.upper.clean=tr a-z A-Z", "-c", "filter.lfs.required=true"];
    scratch.git(&[&filters[..], args].concat())
}

fn blob(scratch: &Scratch, path: &str) -> Vec<u8> {
    scratch.git_bytes(&["cat-file", "blob", &format!(":{path}")])
}

/// Gives the file another time, so that the index no longer knows that it is unchanged.
fn touch(scratch: &Scratch, path: &str) {
    support::run(
        std::process::Command::new("touch").args(["-d", "2001-02-03"]).arg(scratch.workspace().join(path)),
    );
}

/// A repository with files of each conversion, each attribute from another place that git reads.
fn converted() -> Scratch {
    let scratch = Scratch::new();
    scratch.init();
    scratch.write(
        ".gitattributes",
        "[attr]large filter=lfs diff=lfs merge=lfs -text\n*.bin large\n*.wide working-tree-encoding=UTF-16\n",
    );
    scratch.write("deep/er/.gitattributes", "*.up filter=upper\n");
    scratch.write(".git/info/attributes", "info.txt filter=upper\n");
    for (path, content) in [
        ("big.bin", &[7; 5000][..]),
        ("deep/er/a.up", b"shout\n"),
        ("info.txt", b"quiet\n"),
        ("a.wide", b"\xff\xfew\0i\0d\0e\0\n\0"),
        ("plain", b"plain\n"),
    ] {
        scratch.write(path, content);
    }
    filtered(&scratch, &["add", "-A"]);
    filtered(&scratch, &["commit", "-q", "-m", "one"]);
    assert_eq!(blob(&scratch, "deep/er/a.up"), b"SHOUT\n");
    assert_eq!(blob(&scratch, "a.wide"), b"wide\n");
    scratch
}

const CONVERTED: [&str; 4] = ["a.wide", "big.bin", "deep/er/a.up", "info.txt"];

#[test]
fn files_with_a_filter_or_encoding_are_unchanged_or_not_examined_and_never_added_raw() {
    let scratch = converted();
    let mut host_worker = scratch.host_worker();
    let clean = "## main\n";
    assert_eq!(host_worker.status(), clean, "size and time say that nothing has changed");
    assert_eq!(host_worker.diff(&[], &[]), "");
    let before = scratch.git(&["ls-files", "-s"]);
    host_worker.add(&["."]).unwrap();
    assert_eq!(scratch.git(&["ls-files", "-s"]), before);
    scratch.write("plain", "changed\n");
    host_worker.add(&["."]).unwrap();
    scratch.write("plain", "plain\n");
    host_worker.add(&["."]).unwrap();
    assert_eq!(host_worker.status(), clean);

    // Time says that they may have changed. Of a file of Git LFS its pointer says that it has not.
    for path in CONVERTED {
        touch(&scratch, path);
    }
    let seen = host_worker.status();
    for path in CONVERTED {
        assert_eq!(seen.contains(path), path != "big.bin", "{path}: {seen}");
    }
    assert_eq!(seen.matches("not looked at").count(), 3, "{seen}");
    assert!(!seen.contains(" M "), "{seen}");
    let diff = host_worker.diff(&[], &[]);
    assert!(diff.contains("* Not looked at info.txt (filter=upper "), "{diff}");
    assert!(diff.contains("a.wide (working-tree-encoding=UTF-16 ") && !diff.contains("@@"), "{diff}");
    assert_eq!(host_worker.diff(&["--name-status"], &["a.wide"]), "?\ta.wide\n");

    // They have changed, and one is new, and one has another mode alone.
    scratch.write("big.bin", [8; 5000]);
    scratch.write("new.bin", [9; 3000]);
    scratch.write("plain", "two\n");
    fs::set_permissions(scratch.workspace().join("info.txt"), fs::Permissions::from_mode(0o755)).unwrap();
    for preview in [false, true] {
        let add = |paths: &[&str]| Git::Add { paths: support::paths(paths) };
        let mut ask = |paths: &[&str]| {
            if preview { host_worker.preview(add(paths)) } else { host_worker.git(add(paths)) }
        };
        let failure = ask(&["."]).unwrap_err();
        assert_eq!(failure.reason, Reason::PreconditionFailed);
        for path in [
            "a.wide (working-tree-encoding=UTF-16)",
            "big.bin (filter=lfs)",
            "new.bin (filter=lfs)",
            "info.txt (filter=upper)",
        ] {
            assert!(failure.message.contains(path), "{path}: {failure:?}");
        }
        assert!(!failure.message.contains("plain"), "{failure:?}");
    }
    assert_eq!(scratch.git(&["ls-files", "-s"]), before, "a refused call stages nothing");
    host_worker.add(&["plain"]).unwrap();
    assert_eq!(blob(&scratch, "plain"), b"two\n");

    // A pointer and an empty file are in their stored form. A link has no filter.
    let pointer = blob(&scratch, "big.bin");
    scratch.write("new.bin", &pointer);
    scratch.write("empty.bin", "");
    std::os::unix::fs::symlink("plain", scratch.workspace().join("link.bin")).unwrap();
    scratch.own();
    host_worker.add(&["new.bin", "empty.bin", "link.bin"]).unwrap();
    assert_eq!(blob(&scratch, "new.bin"), pointer);
    assert_eq!(blob(&scratch, "link.bin"), b"plain");
    fs::remove_file(scratch.workspace().join("big.bin")).unwrap();
    assert!(host_worker.status().contains(" D big.bin\n"));
    host_worker.add(&["big.bin"]).unwrap();
    assert!(!scratch.git(&["ls-files"]).contains("big.bin"));
    host_worker.commit("the rest").unwrap();
}

#[test]
fn another_mode_alone_of_a_converted_file_is_a_change_that_is_staged() {
    let scratch = converted();
    let mut host_worker = scratch.host_worker();
    let before = blob(&scratch, "big.bin");
    fs::set_permissions(scratch.workspace().join("big.bin"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(host_worker.status(), "## main\n M big.bin\n");
    let diff = "diff --git a/big.bin b/big.bin\nold mode 100644\nnew mode 100755\n";
    assert_eq!(host_worker.diff(&[], &[]), diff);
    host_worker.add(&["."]).unwrap();
    assert!(scratch.git(&["ls-files", "-s", "big.bin"]).starts_with("100755 "));
    assert_eq!(blob(&scratch, "big.bin"), before);
    assert_eq!(filtered(&scratch, &["status", "--porcelain"]), "M  big.bin\n");
}

#[test]
fn attributes_come_from_the_index_where_the_work_tree_has_none() {
    let scratch = converted();
    let mut host_worker = scratch.host_worker();
    fs::remove_file(scratch.workspace().join(".gitattributes")).unwrap();
    scratch.write("new.bin", [1; 100]);
    let failure = host_worker.add(&["new.bin"]).unwrap_err();
    assert!(failure.message.contains("new.bin (filter=lfs)"), "{failure:?}");
    scratch.write(".gitattributes", "*.bin -filter\n*.wide working-tree-encoding=UTF-8\n");
    scratch.write("b.wide", "narrow\n");
    host_worker.add(&["new.bin", "b.wide"]).unwrap();
    assert_eq!(blob(&scratch, "new.bin"), [1; 100]);
}

#[test]
fn names_that_are_not_utf8_are_shown_added_and_committed() {
    let scratch = Scratch::new();
    scratch.init();
    let odd = |name: &[u8]| scratch.workspace().join(OsStr::from_bytes(name));
    scratch.write("good", "good\n");
    fs::create_dir(odd(b"dir\xfe")).unwrap();
    for name in [&b"caf\xe9"[..], b"dir\xfe/in", b"\xc3\x28"] {
        fs::write(odd(name), "odd\n").unwrap();
    }
    scratch.own();
    let mut host_worker = scratch.host_worker();
    assert!(host_worker.status().contains("?? \"caf\\351\"\n"), "{}", host_worker.status());
    let preview = host_worker.preview(Git::Add { paths: paths(&["."]) }).unwrap();
    assert!(preview.output.contains("add '\"caf\\351\"'\n"), "{preview:?}");
    host_worker.add(&["."]).unwrap();
    let files = "\"\\303(\"\n\"caf\\351\"\n\"dir\\376/in\"\ngood\n";
    let listed = |scratch: &Scratch| {
        let mut lines: Vec<String> = scratch.git(&["ls-files"]).lines().map(str::to_owned).collect();
        lines.sort();
        lines.join("\n") + "\n"
    };
    assert_eq!(listed(&scratch), files);
    host_worker.commit("all of them").unwrap();
    assert_eq!(host_worker.status(), "## main\n");
    fs::write(odd(b"caf\xe9"), "changed\n").unwrap();
    fs::remove_file(odd(b"dir\xfe/in")).unwrap();
    assert_eq!(host_worker.status(), "## main\n M \"caf\\351\"\n D \"dir\\376/in\"\n");
    assert!(host_worker.diff(&[], &[]).contains("+++ \"b/caf\\351\"\n"));
    host_worker.add(&["."]).unwrap();
    host_worker.commit("changed").unwrap();
    assert_eq!(scratch.git(&["status", "--porcelain"]), "");
}

/// Has every operation answered, and returns the failures.
fn failures(scratch: &Scratch) -> Vec<String> {
    scratch.own();
    scratch.write("a", "changed\n");
    let mut host_worker = scratch.host_worker();
    let all = [
        Git::Status,
        Git::Diff { flags: Vec::new(), paths: Vec::new() },
        support::log(&["--stat"], "", &[]),
        support::show(&[], "HEAD", &[]),
        Git::Add { paths: paths(&["."]) },
        Git::Commit { message: "changed".to_owned() },
    ];
    all.into_iter()
        .filter_map(|command| host_worker.git(command).err())
        .map(|failure| failure.message)
        .collect()
}

#[test]
fn formats_that_newer_gits_make_work_or_are_refused_with_a_remedy() {
    type Make = fn(&Scratch);
    let cases: [(&str, Make, &str); 16] = [
        ("index version 4", |s| drop(s.git(&["update-index", "--index-version", "4"])), ""),
        ("untracked cache", |s| drop(s.git(&["update-index", "--force-untracked-cache"])), ""),
        (
            "no hash",
            |s| drop(s.git(&["-c", "index.skipHash=true", "update-index", "--force-write-index"])),
            "",
        ),
        ("many files", |s| drop(s.git(&["-c", "feature.manyFiles=true", "add", "--renormalize", "."])), ""),
        (
            "split index",
            |s| drop(s.git(&["update-index", "--split-index"])),
            "git update-index --no-split-index",
        ),
        (
            "sparse index",
            |s| drop(s.git(&["sparse-checkout", "set", "--cone", "--sparse-index", "kept"])),
            "git sparse-checkout reapply --no-sparse-index",
        ),
        ("sparse", |s| drop(s.git(&["sparse-checkout", "set", "--cone", "kept"])), ""),
        (
            "sparse by patterns",
            |s| drop(s.git(&["sparse-checkout", "set", "--no-cone", "/*", "!dropped/"])),
            "",
        ),
        ("worktreeConfig", |s| drop(s.git(&["config", "extensions.worktreeConfig", "true"])), ""),
        (
            "work tree elsewhere",
            |s| {
                s.git(&["config", "extensions.worktreeConfig", "true"]);
                s.write(".git/config.worktree", "[core]\nworktree = ../elsewhere\n");
            },
            "core.worktree",
        ),
        (
            "partial",
            |s| {
                s.git(&["config", "core.repositoryFormatVersion", "1"]);
                s.git(&["config", "extensions.partialClone", "origin"]);
            },
            "",
        ),
        (
            "precious",
            |s| {
                s.git(&["config", "core.repositoryFormatVersion", "1"]);
                s.git(&["config", "extensions.preciousObjects", "true"]);
                s.git(&["config", "extensions.noop", "1"]);
            },
            "",
        ),
        (
            "unknown",
            |s| {
                drop(
                    s.write(".git/config", "[core]\nrepositoryformatversion = 1\n[extensions]\nfrobnicate\n"),
                );
            },
            "'frobnicate'",
        ),
        ("an older version", |s| drop(s.write(".git/config", "[extensions]\nfrobnicate\n")), ""),
        ("sha256", |s| remake(s, "--object-format=sha256"), "extensions.objectFormat"),
        ("reftable", |s| remake(s, "--ref-format=reftable"), "git refs migrate --ref-format=files"),
    ];
    for (what, make, words) in cases {
        let scratch = Scratch::new();
        scratch.init();
        for path in ["a", "kept/b", "dropped/c"] {
            scratch.write(path, "one\n");
        }
        scratch.commit_all("one");
        make(&scratch);
        let failures = failures(&scratch);
        if words.is_empty() {
            assert_eq!(failures, [""; 0], "{what}");
            scratch.git(&["fsck", "--strict"]);
            assert_eq!(scratch.git(&["status", "--porcelain"]), "", "{what}");
        } else {
            assert!(failures.len() >= 4, "{what}: {failures:?}");
            assert!(failures.iter().all(|failure| failure.contains(words)), "{what}: {failures:?}");
        }
    }
}

fn remake(scratch: &Scratch, format: &str) {
    fs::remove_dir_all(scratch.workspace().join(".git")).unwrap();
    scratch.git(&["init", "-q", "-b", "main", format]);
    scratch.commit_all("one");
}
