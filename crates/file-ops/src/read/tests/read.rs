use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use jail::{GitReads, Jail, Mount, Protection, Root};
use operations::{Bounds, Encoding, Hint, Outcome, Read, ReadPart, ReadResult, Reason, ToolFailure};

use crate::read::scene::{Scene, expect_result, path};
use crate::{Cancel, read, read_at_once};

fn request(at: &str, part: ReadPart) -> Read {
    Read { path: path(at), part, encoding: Encoding::Utf8, transfer: None }
}

fn attempt(scene: &Scene, request: &Read, max_read_bytes: u64) -> Outcome {
    read(&scene.jail, request, &Bounds { max_read_bytes, ..Bounds::default() }, &Cancel::default())
}

fn found(scene: &Scene, request: &Read, max_read_bytes: u64) -> ReadResult {
    expect_result!(attempt(scene, request, max_read_bytes), Read)
}

fn failure(scene: &Scene, at: &str) -> ToolFailure {
    attempt(scene, &request(at, ReadPart::Whole), 100).unwrap_err()
}

const fn lines(first: u64, last: Option<u64>) -> ReadPart {
    ReadPart::Lines { first, last }
}

const fn bytes(offset: u64, limit: Option<u64>) -> ReadPart {
    ReadPart::Bytes { offset, limit }
}

#[test]
fn a_whole_file_with_its_hash_and_line_endings() {
    let scene = Scene::new();
    scene.file("a.txt", "one\r\ntwo");
    let expected = ReadResult {
        path: "@project/a.txt".to_owned(),
        content: "one\r\ntwo".to_owned(),
        encoding: Encoding::Utf8.into(),
        size_bytes: 8,
        sha256: "29a776bb35efe730dabb1b1d3ad74dbf80cc3e9009e168241798ea73adca3dcf".to_owned(),
        total_lines: 2,
        start_line: 1,
        end_line: 2,
        ..ReadResult::default()
    };
    assert_eq!(found(&scene, &request("a.txt", ReadPart::Whole), 100), expected);
}

#[test]
fn an_empty_file_has_no_lines() {
    let scene = Scene::new();
    scene.file("empty", "");
    let result = found(&scene, &request("empty", ReadPart::Whole), 100);
    assert_eq!((result.size_bytes, result.total_lines, result.start_line, result.end_line), (0, 0, 0, 0));
    assert_eq!(
        (result.content.as_str(), result.truncated, result.hint.as_str(), result.sha256.as_str()),
        ("", false, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    );
}

#[test]
fn a_range_reports_its_lines_and_their_total() {
    let scene = Scene::new();
    scene.file("a", "1\n2\n3\n4\n");
    let result = found(&scene, &request("a", lines(2, Some(3))), 100);
    assert_eq!(
        (result.content.as_str(), result.start_line, result.end_line, result.total_lines, result.truncated),
        ("2\n3\n", 2, 3, 4, false)
    );
    let result = found(&scene, &request("a", lines(4, Some(9))), 100);
    assert_eq!((result.content.as_str(), result.start_line, result.end_line), ("4\n", 4, 4));
    let result = found(&scene, &request("a", lines(5, None)), 100);
    assert_eq!((result.content.as_str(), result.start_line, result.truncated), ("", 0, false));
    assert_eq!(result.hint, "the file has 4 lines: line 5 is beyond its end");
}

#[test]
fn a_long_file_is_previewed_with_the_next_offset() {
    let scene = Scene::new();
    scene.file("a", "line\n".repeat(1000));
    let result = found(&scene, &request("a", ReadPart::Whole), 12);
    assert_eq!((result.content.as_str(), result.end_line, result.truncated), ("line\nline\nli", 3, true));
    assert_eq!((result.size_bytes, result.total_lines), (5000, 1000));
    assert_eq!(
        result.hint,
        "content ends in line 3, the file has 5000 bytes in 1000 lines: continue with line 3, or search the file"
    );
    let result = found(&scene, &request("a", lines(3, None)), 10);
    assert_eq!((result.start_line, result.end_line, result.truncated), (3, 4, true));
}

#[test]
fn a_cut_character_is_left_out_and_the_next_offset_is_exact() {
    let scene = Scene::new();
    scene.file("a", "€".repeat(100));
    let result = found(&scene, &request("a", ReadPart::Whole), 10);
    assert_eq!((result.content.as_str(), result.binary, result.truncated), ("€€€", false, true));
    assert!(result.hint.contains("byte 9, "), "{}", result.hint);
    let result = found(&scene, &request("a", bytes(10, Some(6))), 100);
    assert_eq!((result.content.as_str(), result.binary, result.truncated), ("€", false, false));
    assert_eq!((result.start_line, result.end_line), (0, 0));
}

#[test]
fn a_range_beyond_the_end_is_reported() {
    let scene = Scene::new();
    scene.file("a", "abc");
    let result = found(&scene, &request("a", bytes(4, None)), 100);
    assert_eq!(result.hint, "the file has 3 bytes: byte 4 is beyond its end");
}

#[test]
fn binary_content_is_named_and_given_as_base64() {
    let scene = Scene::new();
    for content in [&b"a\0b"[..], b"caf\xe9"] {
        scene.file("a", content);
        let result = found(&scene, &request("a", ReadPart::Whole), 100);
        assert_eq!((result.binary, result.content.as_str(), result.end_line), (true, "", 0));
        assert!(result.hint.contains("left out"), "{}", result.hint);
        let base64 = Read { encoding: Encoding::Base64, ..request("a", ReadPart::Whole) };
        let result = found(&scene, &base64, 100);
        assert_eq!(operations::decode_base64(&result.content).unwrap(), content);
        assert!(!result.binary);
        let result = found(&scene, &base64, 4);
        assert_eq!(
            (operations::decode_base64(&result.content).unwrap().as_slice(), result.truncated),
            (&content[..3], content.len() > 3)
        );
    }
}

#[test]
fn only_the_asked_part_has_to_be_text() {
    let scene = Scene::new();
    scene.file("a", b"text\n\xff\xff\n");
    assert!(!found(&scene, &request("a", lines(1, Some(1))), 100).binary);
    assert!(found(&scene, &request("a", lines(2, None)), 100).binary);
}

#[test]
fn non_regular_files_are_refused_immediately() {
    let scene = Scene::new();
    scene.file("dir/x", "");
    scene.fifo("fifo");
    symlink(scene.outside.join("canary"), scene.inside.join("absolute")).unwrap();
    symlink("../outside/canary", scene.inside.join("relative")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(scene.inside.join("socket")).unwrap();
    assert_eq!(failure(&scene, "dir").message, "@project/dir is a directory");
    for (at, reason) in [
        ("dir", Reason::InvalidArgument),
        ("fifo", Reason::SandboxViolation),
        ("socket", Reason::SandboxViolation),
        ("absolute", Reason::SandboxViolation),
        ("relative", Reason::SandboxViolation),
        (".git/config", Reason::SandboxViolation),
        ("@state/x", Reason::SandboxViolation),
        ("missing", Reason::NotFound),
        ("dir/x/y", Reason::InvalidArgument),
    ] {
        let failure = failure(&scene, at);
        assert_eq!(failure.reason, reason, "{at}: {failure:?}");
        assert!(!failure.message.contains(scene.inside.to_str().unwrap()), "{failure:?}");
    }
}

#[test]
fn a_link_inside_the_mount_is_followed() {
    let scene = Scene::new();
    scene.file("a", "here");
    symlink("a", scene.inside.join("link")).unwrap();
    let result = found(&scene, &request("link", ReadPart::Whole), 100);
    assert_eq!((result.path.as_str(), result.content.as_str()), ("@project/link", "here"));
}

#[test]
fn a_huge_sparse_file_ends_by_the_deadline() {
    let scene = Scene::new();
    File::create(scene.inside.join("huge")).unwrap().set_len(Bounds::LARGEST_READ).unwrap();
    let cancel = Cancel::new(Some(Instant::now() + Duration::from_millis(5)));
    let failure =
        read(&scene.jail, &request("huge", lines(1 << 40, None)), &Bounds::default(), &cancel).unwrap_err();
    assert_eq!(failure.reason, Reason::TimedOut);
    assert_eq!(failure.details["size_bytes"], Bounds::LARGEST_READ.to_string());
}

#[test]
fn a_file_that_takes_too_long_to_hash_is_refused_unread() {
    let scene = Scene::new();
    let size = Bounds::LARGEST_READ + 1;
    File::create(scene.inside.join("huge")).unwrap().set_len(size).unwrap();
    // Nothing that is read would be answered with this.
    let cancel = Cancel::default();
    cancel.cancel();
    for part in [ReadPart::Whole, lines(1, Some(3)), bytes(size - 1, Some(1)), bytes(0, Some(0))] {
        let failure = read(&scene.jail, &request("huge", part), &Bounds::default(), &cancel).unwrap_err();
        assert_eq!(failure.reason, Reason::ReadLimit, "{part:?}: {failure:?}");
        assert_eq!(failure.details["size_bytes"], size.to_string());
        assert_eq!(failure.hints, [Hint::Search, Hint::Parts]);
    }
}

#[test]
fn a_cancelled_read_is_reported() {
    let scene = Scene::new();
    scene.file("a", "x");
    let cancel = Cancel::default();
    cancel.cancel();
    let failure = read(&scene.jail, &request("a", ReadPart::Whole), &Bounds::default(), &cancel).unwrap_err();
    assert_eq!(failure.reason, Reason::Cancelled);
    assert!(failure.message.starts_with("cancelled: @project/a: 0 of 1 bytes read; "), "{}", failure.message);
}

#[test]
fn one_endless_line_is_cut_and_counted() {
    let scene = Scene::new();
    let file = scene.inside.join("line");
    fs::write(&file, vec![b'x'; 64 << 20]).unwrap();
    let result = found(&scene, &request("line", ReadPart::Whole), 50_000);
    assert_eq!((result.content.len(), result.size_bytes, result.total_lines), (50_000, 64 << 20, 1));
    assert!(result.truncated && result.hint.contains("byte 50000, "), "{}", result.hint);
}

#[test]
fn fast_read_equals_ordinary_read() {
    let scene = Scene::new();
    scene.file("empty", "");
    scene.file("a/text", "one\r\ntwo\nthree");
    scene.file("binary", [0xff, 0, 1]);
    scene.file("largest", "x".repeat(16 * 1024));
    let parts = [ReadPart::Whole, lines(2, Some(2)), lines(9, None), bytes(1, Some(3)), bytes(99, None)];
    for at in ["empty", "a/text", "binary", "largest"] {
        // Whoever has just read it finds it in the kernel's memory.
        for part in parts {
            let request = request(at, part);
            for max_read_bytes in [3, 50_000] {
                let bounds = Bounds { max_read_bytes, ..Bounds::default() };
                let expected = attempt(&scene, &request, max_read_bytes);
                assert_eq!(read_at_once(&scene.jail, &request, &bounds), Some(expected), "{at} {part:?}");
            }
        }
    }
}

#[test]
fn fast_read_skips_everything_else() {
    let scene = Scene::new();
    scene.file("a", "text");
    scene.file("large", "x".repeat(16 * 1024 + 1));
    scene.file(".git/config", "[core]");
    scene.fifo("fifo");
    symlink("a", scene.inside.join("link")).unwrap();
    symlink(".", scene.inside.join("here")).unwrap();
    symlink(scene.outside.join("canary"), scene.inside.join("out")).unwrap();
    for at in ["large", "fifo", "link", "here/a", "out", ".", "gone", "a/b", "@pkg/a"] {
        let request = request(at, ReadPart::Whole);
        let _ = attempt(&scene, &request, 100);
        assert_eq!(read_at_once(&scene.jail, &request, &Bounds::default()), None, "{at}");
    }
    let guarded = Protection { git_reads: GitReads::Guarded };
    let jail = Jail::new([Root::open(Mount::Project, &scene.inside).unwrap()], guarded);
    assert_eq!(read_at_once(&jail, &request(".git/config", ReadPart::Whole), &Bounds::default()), None);
}
