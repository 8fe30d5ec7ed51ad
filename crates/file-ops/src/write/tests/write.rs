use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use operations::{Bounds, EditResult, OpResult, Outcome, Reason, ToolFailure, Write, WriteResult, sha256};

use super::{Scene, path};
use crate::{preview_write, write};

fn request(at: &str, content: impl AsRef<[u8]>) -> Write {
    Write::new(path(at), content.as_ref())
}

fn attempt(scene: &Scene, request: &Write) -> Outcome {
    write(&scene.jail, request, &Bounds::default(), None)
}

fn preview(scene: &Scene, request: &Write) -> EditResult {
    match preview_write(&scene.jail, request, &Bounds::default()).map(|preview| preview.result) {
        Ok(OpResult::Edit(result)) => result,
        other => panic!("unexpected: {other:?}"),
    }
}

/// The failure, which the preview has to foretell.
fn failure(scene: &Scene, request: &Write) -> ToolFailure {
    let foretold = preview_write(&scene.jail, request, &Bounds::default()).unwrap_err();
    assert_eq!(attempt(scene, request).unwrap_err(), foretold);
    foretold
}

#[test]
fn a_new_file_in_new_directories() {
    let scene = Scene::new();
    let result = attempt(&scene, &request("a/b/c.txt", "no newline")).unwrap();
    assert_eq!(
        result,
        OpResult::Write(WriteResult {
            path: "@project/a/b/c.txt".to_owned(),
            bytes_written: 10,
            sha256_before: String::new(),
            sha256_after: sha256(b"no newline"),
            created: true,
            entries: 0,
        })
    );
    assert_eq!(scene.get("a/b/c.txt"), b"no newline");
}

#[test]
fn an_existing_file_keeps_its_mode_and_the_result_has_both_hashes() {
    let scene = Scene::new();
    scene.put("run.sh", "old");
    fs::set_permissions(scene.inside.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    let Ok(OpResult::Write(result)) = attempt(&scene, &request("run.sh", b"\x00new\xff")) else { panic!() };
    assert_eq!(
        (result.sha256_before, result.sha256_after, result.created),
        (sha256(b"old"), sha256(b"\x00new\xff"), false)
    );
    assert_eq!(fs::metadata(scene.inside.join("run.sh")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(scene.get("run.sh"), b"\x00new\xff");
}

#[test]
fn a_preview_shows_the_diff_and_changes_nothing() {
    let scene = Scene::new();
    scene.put("a", "1\n2\n3\n");
    let result = preview(&scene, &request("a", "1\n2b\n3\n"));
    assert_eq!(result.diff, "--- @project/a\n+++ @project/a\n@@ -1,3 +1,3 @@\n 1\n-2\n+2b\n 3\n");
    assert_eq!((result.sha256_before, result.sha256_after), (sha256(b"1\n2\n3\n"), sha256(b"1\n2b\n3\n")));
    let result = preview(&scene, &request("new/dir/b", "x"));
    assert_eq!(
        result.diff,
        "--- /dev/null\n+++ @project/new/dir/b\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n"
    );
    assert_eq!((scene.names(), scene.get("a")), (vec!["a".to_owned()], b"1\n2\n3\n".to_vec()));
}

#[test]
fn binary_content_is_previewed_in_one_line() {
    let scene = Scene::new();
    scene.put("a", b"\xff\xff");
    assert_eq!(
        preview(&scene, &request("a", "text")).diff,
        "Binary or very long: @project/a from 2 bytes to 4 bytes\n"
    );
    assert_eq!(
        preview(&scene, &request("b", b"\0")).diff,
        "Binary or very long: @project/b from no file to 1 bytes\n"
    );
}

#[test]
fn a_name_cannot_forge_a_line_of_the_diff() {
    let scene = Scene::new();
    let diff = preview(&scene, &request("a\n+++ b", "x\n")).diff;
    assert_eq!(diff, "--- /dev/null\n+++ \"@project/a\\n+++ b\"\n@@ -0,0 +1 @@\n+x\n");
}

#[test]
fn a_long_diff_counts_the_omitted_bytes() {
    let scene = Scene::new();
    let bounds = Bounds { max_output_bytes: 100, ..Bounds::default() };
    let Ok(OpResult::Edit(result)) =
        preview_write(&scene.jail, &request("a", "line\n".repeat(1000)), &bounds)
            .map(|preview| preview.result)
    else {
        panic!()
    };
    assert!(result.diff_truncated);
    let header = "--- /dev/null\n+++ @project/a\n@@ -0,0 +1,1000 @@\n".len();
    let left_out = header + 6000 - 100;
    assert!(
        result.diff.ends_with(&format!("\n\\ {left_out} more bytes of this diff are left out\n")),
        "{}",
        result.diff
    );
}

#[test]
fn an_excess_is_refused_with_the_numbers() {
    let scene = Scene::new();
    let failure = failure(&scene, &request("d/a", vec![b'x'; 100_001]));
    assert_eq!(failure.reason, Reason::WriteLimit);
    assert!(
        failure.message.starts_with("@project/d/a would have 100001 bytes, more than the 100000 "),
        "{failure:?}"
    );
    assert!(scene.names().is_empty());
}

#[test]
fn a_hash_has_to_match_the_present_content() {
    let scene = Scene::new();
    scene.put("a", "now");
    let with = |at: &str, hash: &str| Write { if_match_sha256: Some(hash.to_owned()), ..request(at, "next") };
    let refused = failure(&scene, &with("a", &sha256(b"then")));
    assert_eq!(
        (refused.reason, refused.details["sha256"].as_str()),
        (Reason::PreconditionFailed, sha256(b"now").as_str())
    );
    assert_eq!(failure(&scene, &with("d/none", &sha256(b""))).reason, Reason::PreconditionFailed);
    assert_eq!(scene.names(), ["a"]);
    assert!(attempt(&scene, &with("a", &sha256(b"now"))).is_ok());
    assert_eq!(scene.get("a"), b"next");
}

#[test]
fn create_only_never_replaces() {
    let scene = Scene::new();
    scene.put("a", "mine");
    let refused = failure(&scene, &Write { create_only: true, ..request("a", "yours") });
    assert_eq!(refused.reason, Reason::PreconditionFailed);
    assert_eq!(scene.get("a"), b"mine");
}

#[test]
fn one_of_many_creates_wins() {
    let scene = Scene::new();
    for round in 0..20 {
        let name = format!("dir{round}/file");
        let attempts: Vec<_> = std::thread::scope(|threads| {
            let workers: Vec<_> = (0..8)
                .map(|n| {
                    let request = Write { create_only: true, ..request(&name, format!("writer {n}")) };
                    let scene = &scene;
                    threads.spawn(move || attempt(scene, &request))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let winners: Vec<_> = (0..8).filter(|&n| attempts[n].is_ok()).collect();
        assert_eq!(winners.len(), 1, "{attempts:?}");
        assert_eq!(scene.get(&name), format!("writer {}", winners[0]).as_bytes());
        for lost in attempts.iter().filter_map(|attempt| attempt.as_ref().err()) {
            assert_eq!(lost.reason, Reason::PreconditionFailed, "{lost:?}");
        }
    }
}

#[test]
fn non_regular_targets_are_neither_replaced_nor_followed() {
    let scene = Scene::new();
    fs::create_dir(scene.inside.join("dir")).unwrap();
    symlink(scene.outside.join("new"), scene.inside.join("link")).unwrap();
    symlink(&scene.outside, scene.inside.join("out")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        scene.inside.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    for (at, reason) in [
        ("dir", Reason::InvalidArgument),
        ("link", Reason::SandboxViolation),
        ("out/new", Reason::SandboxViolation),
        ("fifo", Reason::SandboxViolation),
        (".git/config", Reason::SandboxViolation),
        ("@pkg/a", Reason::SandboxViolation),
    ] {
        let failure = failure(&scene, &request(at, "x"));
        assert_eq!(failure.reason, reason, "{at}: {failure:?}");
        assert!(!failure.message.contains(scene.inside.to_str().unwrap()), "{failure:?}");
    }
    assert_eq!(fs::read_dir(&scene.outside).unwrap().count(), 0);
}

#[test]
fn a_file_that_takes_too_long_to_hash_is_not_replaced() {
    let scene = Scene::new();
    let huge = fs::File::create(scene.inside.join("huge")).unwrap();
    huge.set_len(Bounds::LARGEST_READ + 1).unwrap();
    let refused = failure(&scene, &request("huge", "x"));
    assert_eq!(refused.reason, Reason::WriteLimit, "{refused:?}");
    assert_eq!(huge.metadata().unwrap().len(), Bounds::LARGEST_READ + 1);
    // Files that are transferred can be larger, and are replaced all the same.
    let bounds = Bounds { max_transfer_bytes: Bounds::LARGEST_READ + 1, ..Bounds::default() };
    write(&scene.jail, &request("huge", "x"), &bounds, None).unwrap();
    assert_eq!(scene.get("huge"), b"x");
}
