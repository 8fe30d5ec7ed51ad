use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use operations::{Bounds, EntryType, List, ListResult, Outcome, Reason};

use crate::read::scene::{Scene, expect_result, path};
use crate::{Cancel, list};

fn request(at: &str) -> List {
    List::new(path(at))
}

fn attempt(scene: &Scene, request: &List) -> Outcome {
    list(&scene.jail, request, &Bounds { max_output_bytes: 1 << 20, ..Bounds::default() }, &Cancel::default())
}

fn found(scene: &Scene, request: &List) -> ListResult {
    expect_result!(attempt(scene, request), List)
}

fn paths(result: &ListResult) -> Vec<&str> {
    result.entries.iter().map(|entry| entry.path.as_str()).collect()
}

fn tree() -> Scene {
    let scene = Scene::new();
    scene.file("b.txt", "12345");
    scene.file("a/x", "");
    scene.file("a/deep/y", "");
    scene.file("a-b", "");
    scene.file(".hidden/z", "");
    symlink("b.txt", scene.inside.join("link")).unwrap();
    symlink("a", scene.inside.join("dirlink")).unwrap();
    scene.fifo("pipe");
    scene
}

#[test]
fn direct_children_with_type_and_size() {
    let result = found(&tree(), &request("@project"));
    assert_eq!(paths(&result), ["@project/a", "@project/a-b", "@project/b.txt", "@project/pipe"]);
    let types: Vec<_> = result.entries.iter().map(|entry| (entry.r#type(), entry.size_bytes)).collect();
    assert_eq!(
        types,
        [(EntryType::Directory, 0), (EntryType::File, 0), (EntryType::File, 5), (EntryType::Other, 0)]
    );
    assert_eq!(result.entries[2].name, "b.txt");
    assert!(result.entries[2].modified_unix_seconds > 1_600_000_000);
    assert_eq!((result.total_entries, result.truncated, result.hint.as_str()), (4, false, ""));
}

#[test]
fn deeper_levels_are_sorted_by_path_and_links_are_not_entered() {
    let request = List { depth: 3, include_hidden: true, include_symlinks: true, ..request("@project") };
    assert_eq!(
        paths(&found(&tree(), &request)),
        [
            "@project/.hidden",
            "@project/.hidden/z",
            "@project/a",
            "@project/a-b",
            "@project/a/deep",
            "@project/a/deep/y",
            "@project/a/x",
            "@project/b.txt",
            "@project/dirlink",
            "@project/link",
            "@project/pipe",
        ]
    );
}

#[test]
fn the_first_entries_by_path_whatever_the_order_on_disk() {
    let scene = Scene::new();
    fs::create_dir(scene.inside.join("d")).unwrap();
    let count = effort::cases(2_000, 20_000);
    for n in 0..count {
        fs::File::create(scene.inside.join(format!("d/f{n:05}"))).unwrap();
    }
    let result = found(&scene, &List { max_entries: 3, ..request("d") });
    assert_eq!(paths(&result), ["@project/d/f00000", "@project/d/f00001", "@project/d/f00002"]);
    assert_eq!((result.truncated, result.total_entries), (true, u64::from(count)));
    assert!(result.hint.starts_with(&format!("the first 3 of {count} entries: ")), "{}", result.hint);
}

#[test]
fn the_answer_is_bounded_in_bytes_too() {
    let scene = Scene::new();
    for n in 0..10 {
        scene.file(format!("f{n}"), "");
    }
    let bounds = Bounds { max_output_bytes: 30, ..Bounds::default() };
    let result = expect_result!(list(&scene.jail, &request("@project"), &bounds, &Cancel::default()), List);
    assert_eq!((result.entries.len(), result.total_entries, result.truncated), (2, 10, true));
}

#[test]
fn names_that_are_not_utf8_are_shown_escaped() {
    let scene = Scene::new();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::create_dir(scene.inside.join(name)).unwrap();
    fs::write(scene.inside.join(name).join("x"), "").unwrap();
    let result = found(&scene, &List { depth: 2, ..request("@project") });
    assert_eq!(paths(&result), ["@project/caf\\xe9", "@project/caf\\xe9/x"]);
}

#[test]
fn a_file_a_pipe_and_a_missing_path_are_refused() {
    let scene = tree();
    for (at, reason, message) in [
        ("b.txt", Reason::InvalidArgument, "@project/b.txt is a file"),
        ("link", Reason::InvalidArgument, "@project/link is a file"),
        ("pipe", Reason::InvalidArgument, "@project/pipe: not a directory"),
        ("none", Reason::NotFound, "@project/none: no such file or directory"),
    ] {
        let failure = attempt(&scene, &request(at)).unwrap_err();
        assert_eq!((failure.reason, failure.message.as_str()), (reason, message));
    }
}

#[test]
fn link_to_git_does_not_reach_its_hooks() {
    let scene = Scene::new();
    scene.file(".git/hooks/pre-commit", "");
    scene.file(".git/HEAD", "");
    symlink(".git", scene.inside.join("innocent")).unwrap();
    let result = found(&scene, &List { depth: 3, include_hidden: true, ..request("innocent") });
    assert_eq!(paths(&result), ["@project/innocent/HEAD"]);
    symlink(&scene.outside, scene.inside.join("out")).unwrap();
    assert_eq!(attempt(&scene, &request("out")).unwrap_err().reason, Reason::SandboxViolation);
}

#[test]
fn a_deadline_reports_the_progress() {
    let failure =
        list(&tree().jail, &request("@project"), &Bounds::default(), &Cancel::new(Some(Instant::now())))
            .unwrap_err();
    assert_eq!((failure.reason, failure.details["entries_seen"].as_str()), (Reason::TimedOut, "0"));
}

#[test]
fn vanishing_entries_are_not_errors() {
    let scene = Scene::new();
    scene.file("stays", "");
    let done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for n in 0..50 {
                    scene.file(format!("dir{n}/x"), "");
                }
                for n in 0..50 {
                    fs::remove_dir_all(scene.inside.join(format!("dir{n}"))).unwrap();
                }
            }
        });
        for _ in 0..100 {
            let outcome = attempt(&scene, &List { depth: 2, ..request("@project") });
            let ok = matches!(&outcome, Ok(operations::OpResult::List(result)) if paths(result).contains(&"@project/stays"));
            if !ok {
                done.store(true, Ordering::Relaxed);
            }
            assert!(ok, "{outcome:?}");
        }
        done.store(true, Ordering::Relaxed);
    });
}
