//! P2, P4 and the bounds of list, glob and grep: trees that are wide, deep, circular, or full of special files.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use harness::v1::operation::Kind as Operation;
use harness::v1::{self, entry};
use harness::{Daemon, calls};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mkdirat, mkfifoat, mknodat, openat};

use crate::inside::Inside;
use crate::looking::{ask, assert_modest, assert_within, enter, glob, grep, list, look, read};

const WIDE: u64 = 100_000;

#[tokio::test]
async fn p2_a_directory_of_100_000_entries_is_listed_found_and_searched_in_bounds() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("wide/needle", "needle\n")]);
    for number in 0..WIDE - 1 {
        File::create(workspace.join(format!("wide/entry-{number:05}"))).unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;

    let first = list(run, ask::list("wide")).await;
    assert_eq!((first.entries.len(), first.total_entries, first.truncated), (200, WIDE, true));
    assert_eq!(first.entries[0].name, "entry-00000", "sorted, whatever the order on disk");
    assert_eq!(first.entries[199].name, "entry-00199");
    assert!(first.hint.starts_with("the first 200 of 100000 entries: "), "{}", first.hint);
    let most = v1::ListRequest { max_entries: Some(10_000), ..ask::list("wide") };
    let most = list(run, most).await;
    assert!(most.truncated && most.total_entries == WIDE, "{}", most.hint);

    let all = glob(run, ask::glob("wide/*")).await;
    assert_eq!((all.paths.len(), all.truncated), (200, true), "{}", all.hint);
    assert_eq!(glob(run, ask::glob("wide/entry-9999?")).await.paths.len(), 9, "99999 is the needle's");
    let found = grep(run, ask::grep("wide", "needle")).await;
    assert_eq!((found.matches.len(), found.files_searched), (1, WIDE), "{}", found.hint);
    assert_modest(&inside);
}

#[tokio::test]
async fn p2_the_longest_names_use_no_additional_memory() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    // The most names of the greatest length that one call looks at.
    for directory in ["one", "two"] {
        fs::create_dir(workspace.join(directory)).unwrap();
        for number in 0..100_000 {
            File::create(workspace.join(format!("{directory}/{number:0>255}"))).unwrap();
        }
    }
    // And paths as long as they come.
    let mut deep = workspace.join("deep");
    for _ in 0..14 {
        fs::create_dir(&deep).unwrap();
        deep.push("d".repeat(255));
    }
    fs::create_dir(&deep).unwrap();
    for number in 0..10_000 {
        File::create(deep.join(format!("{number:0>200}"))).unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    for pattern in ["*", "**/*", "nothing"] {
        let found = glob(&mut inside.run, ask::glob(pattern)).await;
        assert!(found.truncated || found.paths.is_empty(), "{}", found.hint);
    }
    let request = v1::ListRequest { depth: Some(16), max_entries: Some(10_000), ..ask::list("@project") };
    let listed = list(&mut inside.run, request).await;
    assert!(listed.truncated, "{}", listed.hint);
    let found = grep(&mut inside.run, ask::grep("@project", "needle")).await;
    assert_eq!(found.matches, []);
    assert_modest(&inside);

    // Every thread of the agent at it at once.
    let mut looks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let Inside { mut run, .. } = inside.again(&daemon).await;
        looks.spawn(async move {
            let operation = match number % 2 {
                0 => Operation::Glob(ask::glob("nothing")),
                _ => calls::grep("@project", "needle"),
            };
            // As many as it can do by the deadline.
            let _ = look(&mut run, operation).await;
        });
    }
    looks.join_all().await;
    assert_within(&inside, 96 * 1024);
}

/// Directories in each other, deeper than any path can say.
fn dig(top: &Path, levels: u32) {
    let mut at = openat(CWD, top, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
    for level in 0..levels {
        mkdirat(&at, "d", Mode::from_raw_mode(0o777)).unwrap();
        at = openat(&at, "d", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        if level % 500 == 10 {
            let flags = OFlags::CREATE | OFlags::WRONLY;
            let file = openat(&at, "needle", flags, Mode::from_raw_mode(0o666)).unwrap();
            rustix::io::write(&file, b"needle\n").unwrap();
        }
    }
}

#[tokio::test]
async fn p2_directories_in_each_other_for_thousands_of_levels_have_an_end() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("z/needle", "needle\n")]);
    dig(&workspace, 5_000);
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    let top = format!("@project/{}needle", "d/".repeat(11));
    let below = |levels: usize, name: &str| format!("{}{name}", "d/".repeat(levels));

    let deep = list(run, v1::ListRequest { depth: Some(16), ..ask::list("@project") }).await;
    assert!(deep.entries.iter().any(|entry| entry.path == top), "{deep:?}");
    let found = glob(run, ask::glob("**/needle")).await;
    assert_eq!(
        found.paths,
        [top.as_str(), "@project/z/needle"],
        "what is deeper is said, and the rest is seen"
    );
    assert!(found.truncated && found.hint.contains("64 levels"), "{}", found.hint);
    let found = grep(run, ask::grep("@project", "needle")).await;
    assert_eq!(found.matches.len(), 2, "{found:?}");
    assert!(found.truncated && found.hint.contains("search in a subdirectory"), "{}", found.hint);

    // As far down as a path can say everything works, and not an inch below.
    assert_eq!(read(run, ask::read(&below(1_511, "needle"))).await.content, "needle\n");
    assert_eq!(grep(run, ask::grep(&below(1_510, ""), "needle")).await.matches.len(), 1);
    assert_eq!(list(run, ask::list(&below(2_040, ""))).await.entries.len(), 1);
    for operation in [calls::read(&below(2_100, "needle")), calls::list(&below(2_100, ""))] {
        let failure = look(run, operation).await.unwrap_err();
        assert_eq!(failure.reason, "SANDBOX_VIOLATION");
        assert!(failure.message.contains("longer than 4096 bytes"), "{}", failure.message);
    }
    // At the end of the longest path there is still something, which none can name.
    let end = list(run, v1::ListRequest { depth: Some(16), ..ask::list(&below(2_040, "")) }).await;
    assert!(!end.entries.is_empty(), "{end:?}");
    assert_modest(&inside);

    drop(inside);
    let removed = Command::new("rm").arg("-rf").arg(workspace.join("d")).status().unwrap();
    assert!(removed.success());
}

#[tokio::test]
async fn p4_links_in_a_circle_lead_nowhere_and_are_not_walked() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("dir/file", "needle\n")]);
    for (target, name) in [
        ("one", "two"),
        ("two", "one"),
        ("self", "self"),
        (".", "here"),
        ("..", "dir/up"),
        ("dir", "to-dir"),
        ("to-dir/up/to-dir/up/to-dir", "winding"),
        ("here/here/here/here/here/here/here/here/here/here/dir", "long"),
        ("missing", "dangling"),
        ("file/below", "dir/through"),
    ] {
        symlink(target, workspace.join(name)).unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    for path in ["one", "two", "self", "self/x", "one/file"] {
        for operation in [calls::read(path), calls::list(path), calls::grep(path, "needle")] {
            let failure = look(run, operation.clone()).await.unwrap_err();
            assert_eq!(failure.reason, "SANDBOX_VIOLATION", "{operation:?}");
            assert!(failure.message.ends_with("too many levels of symlinks"), "{}", failure.message);
        }
    }
    for (path, reason) in [("dangling", "NOT_FOUND"), ("dir/through", "INVALID_ARGUMENT")] {
        assert_eq!(look(run, calls::read(path)).await.unwrap_err().reason, reason);
    }
    for path in ["to-dir/file", "here/here/dir/file", "dir/up/dir/up/dir/file", "winding/file", "long/file"] {
        assert_eq!(read(run, ask::read(path)).await.content, "needle\n", "{path}");
    }
    let walked = glob(run, ask::glob("**/file")).await;
    assert_eq!((walked.paths, walked.truncated), (vec!["@project/dir/file".to_owned()], false));
    let found = grep(run, ask::grep("@project", "needle")).await;
    assert_eq!((found.matches.len(), found.truncated), (1, false));
    let request = v1::ListRequest { depth: Some(16), include_symlinks: true, ..ask::list("@project") };
    let listed = list(run, request).await;
    let links = listed.entries.iter().filter(|entry| entry.r#type() == entry::Type::Symlink);
    assert_eq!((links.count(), listed.truncated), (10, false), "shown, and none is entered");
    assert_modest(&inside);
}

#[tokio::test]
async fn p2_fifos_sockets_devices_and_magic_links_are_neither_opened_nor_waited_for() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("dir/file", "needle\n")]);
    let mode = Mode::from_raw_mode(0o666);
    mkfifoat(CWD, workspace.join("dir/fifo"), mode).unwrap();
    let _socket = UnixListener::bind(workspace.join("dir/socket")).unwrap();
    for (name, kind, major, minor) in [
        ("zero", FileType::CharacterDevice, 1, 5),
        ("tty", FileType::CharacterDevice, 5, 0),
        ("disk", FileType::BlockDevice, 254, 0),
    ] {
        mknodat(CWD, workspace.join("dir").join(name), kind, mode, makedev(major, minor)).unwrap();
    }
    for (target, name) in [
        ("/proc/self/fd/0", "fd"),
        ("/proc/self/root", "root"),
        ("/proc/self/cwd", "cwd"),
        ("/proc/1/environ", "environ"),
        ("/proc/self/mem", "mem"),
        ("/proc/kmsg", "kmsg"),
        ("/dev/zero", "endless"),
        ("/dev/stdin", "stdin"),
        ("/.cofferdam/guest", "agent"),
        ("fifo", "to-fifo"),
        ("zero", "to-zero"),
    ] {
        symlink(target, workspace.join("dir").join(name)).unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    for (name, what) in [
        ("fifo", "not a regular file: fifo"),
        ("to-fifo", "not a regular file: fifo"),
        ("socket", "not a regular file: socket"),
        ("zero", "not a regular file: device"),
        ("to-zero", "not a regular file: device"),
        ("tty", "not a regular file: device"),
        ("disk", "not a regular file: device"),
        ("fd", "a symlink that leaves its mount (absolute links count)"),
        ("root", "a symlink that leaves its mount (absolute links count)"),
        ("root/etc/passwd", "a symlink that leaves its mount (absolute links count)"),
        ("cwd", "a symlink that leaves its mount (absolute links count)"),
        ("environ", "a symlink that leaves its mount (absolute links count)"),
        ("mem", "a symlink that leaves its mount (absolute links count)"),
        ("kmsg", "a symlink that leaves its mount (absolute links count)"),
        ("endless", "a symlink that leaves its mount (absolute links count)"),
        ("stdin", "a symlink that leaves its mount (absolute links count)"),
        ("agent", "a symlink that leaves its mount (absolute links count)"),
    ] {
        let path = format!("dir/{name}");
        for operation in [calls::read(&path), calls::grep(&path, "needle")] {
            let failure = look(run, operation.clone()).await.unwrap_err();
            let expected = ("SANDBOX_VIOLATION", format!("@project/{path}: {what}"));
            assert_eq!((failure.reason.as_str(), failure.message.clone()), expected, "{operation:?}");
        }
    }
    let found = grep(run, ask::grep("dir", "needle")).await;
    assert_eq!((found.matches.len(), found.files_searched), (1, 1), "{found:?}");
    assert_eq!(glob(run, ask::glob("dir/*")).await.paths, ["@project/dir/file"]);
    let request = v1::ListRequest { include_symlinks: true, ..ask::list("dir") };
    let listed = list(run, request).await;
    let count = |kind| listed.entries.iter().filter(|entry| entry.r#type() == kind).count();
    let counts = [entry::Type::File, entry::Type::Symlink, entry::Type::Other].map(count);
    assert_eq!(counts, [1, 11, 5], "each is named as what it is: {listed:?}");
    assert_modest(&inside);
}
