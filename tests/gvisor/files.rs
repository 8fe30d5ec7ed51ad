//! Files and trees into a sandbox and out of it.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use harness::files::{archive, contents, sha256};
use harness::v1::{BeginUpload, result::Kind};
use harness::{calls, reason};

use crate::{IDLE, enter, processes};

/// Bytes that do not repeat soon.
fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)).to_le_bytes()[0]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_files_are_transferred_unchanged() {
    let (_daemon, mut inside) = enter().await;
    let content = bytes((20 << 20) + 17);
    let hash = sha256(&content);
    for path in ["data/large.bin", "@state/large.bin"] {
        let run = &mut inside.run;
        let begin = BeginUpload { sha256: hash.clone(), mode: Some(0o751), ..run.begin(path) };
        let written = run.upload_with(begin, &content).await.unwrap().result.unwrap();
        assert_eq!((written.created, &written.sha256_after), (true, &hash));
        let all = run.download(path, 0).await.unwrap();
        assert!(all.data == content && all.begun.unwrap().mode == 0o751, "{path}");
        assert_eq!(all.ended.unwrap().result.unwrap().sha256, hash);
        let offset = (11 << 20) + 5;
        assert!(run.download(path, offset as u64).await.unwrap().data == content[offset..], "{path}");
    }
    let seen = inside.run.exec(&["sha256sum", "data/large.bin", "/state/large.bin"]).await.stdout;
    assert_eq!(seen.matches(&hash).count(), 2, "{seen}");
    let metadata = std::fs::metadata(inside.workspace.join("data/large.bin")).unwrap();
    assert_eq!((metadata.uid(), metadata.permissions().mode() & 0o7777), (4321, 0o751));

    // What lies, and what leads out, changes nothing.
    let run = &mut inside.run;
    run.ran(calls::shell("ln -s /etc/passwd out; ln -s /tmp up; mkfifo pipe")).await;
    for (begin, expected) in [
        (BeginUpload { sha256: sha256(b"other"), ..run.begin("data/large.bin") }, "PRECONDITION_FAILED"),
        (BeginUpload { if_match_sha256: sha256(b"x"), ..run.begin("data/large.bin") }, "PRECONDITION_FAILED"),
        (run.begin("out"), "SANDBOX_VIOLATION"),
        (run.begin("up/x"), "SANDBOX_VIOLATION"),
        (run.begin("/tmp/x"), "SANDBOX_VIOLATION"),
        (run.begin(".git/config"), "SANDBOX_VIOLATION"),
    ] {
        let told = format!("{begin:?}");
        assert_eq!(reason(&run.upload_with(begin, b"new").await.unwrap_err()), expected, "{told}");
    }
    for path in ["out", "up", "pipe", "/etc/passwd", "/proc/self/environ"] {
        assert_eq!(reason(&run.download(path, 0).await.unwrap_err()), "SANDBOX_VIOLATION", "{path}");
    }
    assert!(run.download("data/large.bin", 0).await.unwrap().data == content);
    assert_eq!(processes(&mut inside).await, IDLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn v1_a_tree_goes_in_and_out_in_one_call_each() {
    let (_daemon, mut inside) = enter().await;
    let content = bytes(40_000);
    let files: Vec<_> = (0..200).map(|n| (format!("d{}/f{n}", n % 7), &content[..])).collect();
    let run = &mut inside.run;
    let unpacked = run.upload_archive("tree", &archive(&files)).await.unwrap();
    assert_eq!((unpacked.entries, unpacked.bytes_written), (200, 8_000_000));
    let seen = run.ran(calls::shell("find tree -type f | wc -l; sha256sum tree/d3/f3")).await.stdout;
    assert!(seen.starts_with("200\n") && seen.contains(&sha256(&content)), "{seen}");

    run.ran(calls::shell("ln -s d0/f0 tree/link; ln -s /etc/passwd tree/leaves; mkfifo tree/pipe")).await;
    let all = run.download_archive("tree").await.unwrap();
    let result = all.ended.unwrap().result.unwrap();
    assert_eq!((result.entries, result.left_out, result.sha256), (208, 2, sha256(&all.data)));
    let found = contents(&all.data);
    assert_eq!(found.len(), 200);
    assert!(found.iter().all(|read| *read == content));

    let hostile = archive(&[("a".to_owned(), b"x"), (".git/config".to_owned(), b"x")]);
    let refused = run.upload_archive("other", &hostile).await.unwrap_err();
    assert_eq!(reason(&refused), "SANDBOX_VIOLATION", "{refused}");
    let Kind::List(list) = run.ok(calls::list("@project")).await else { panic!("no list") };
    assert!(list.entries.iter().all(|entry| entry.name != "other"), "{list:?}");
    assert_eq!(processes(&mut inside).await, IDLE);
}
