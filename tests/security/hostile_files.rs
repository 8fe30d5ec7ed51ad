//! P2, and the limits of read and grep: files that are too large, never end a line, are no text, or may not be read.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::v1::operation::Kind as Operation;
use harness::v1::{self, ContentEncoding};
use harness::{Daemon, calls};

use crate::looking::{ask, assert_modest, enter, glob, grep, list, look, look_for, read};

const MIB: u64 = 1 << 20;

/// As another program says it.
fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

#[tokio::test]
async fn p2_a_file_of_terabytes_is_refused_and_delays_no_search() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("small", "needle\n")]);
    let size = 4 << 40;
    File::create(workspace.join("huge")).unwrap().set_len(size).unwrap();
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;

    let parts = [
        ask::read("huge"),
        v1::ReadRequest { start_line: Some(1 << 40), ..ask::read("huge") },
        v1::ReadRequest { offset: Some(1 << 41), limit: Some(10), ..ask::read("huge") },
    ];
    for part in parts {
        let failure =
            look_for(run, Duration::from_secs(10), Operation::Read(part.clone())).await.unwrap_err();
        assert_eq!(failure.reason, "READ_LIMIT", "{part:?}: {failure:?}");
        assert_eq!(failure.details["size_bytes"], size.to_string());
        assert!(failure.message.contains("grep") && failure.message.contains("head"), "{}", failure.message);
    }
    // A hole is zeroes, and zeroes are binary: it is passed over at once, and the rest is searched.
    let found = grep(run, ask::grep("@project", "needle")).await;
    assert_eq!((found.matches.len(), found.files_skipped), (1, 2), "{found:?}");
    let alone = grep(run, ask::grep("huge", "needle")).await;
    assert_eq!((alone.files_skipped, alone.hint.as_str()), (1, "1 file or directory not searched: 1 binary"));
    let listed = list(run, ask::list("@project")).await;
    assert_eq!(listed.entries.iter().find(|entry| entry.name == "huge").unwrap().size_bytes, size);
    assert_eq!(glob(run, ask::glob("hu*")).await.paths, ["@project/huge"]);
    assert_modest(&inside);
}

#[tokio::test]
async fn p2_a_file_over_the_read_limit_is_a_preview_of_a_whole_that_is_measured() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let line = "0123456789abcdef\n";
    let file = workspace.join("large");
    fs::write(&file, line.repeat((8 << 20) / line.len())).unwrap();
    let (size, lines) = (file.metadata().unwrap().len(), 8 * MIB / line.len() as u64);
    // Too large to be looked at twice.
    let holes = workspace.join("holes");
    File::create(&holes).unwrap().set_len(256 * MIB).unwrap();
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;

    let preview = read(run, ask::read("large")).await;
    assert_eq!((preview.size_bytes, preview.total_lines, preview.truncated), (size, lines, true));
    assert_eq!((preview.sha256, preview.content.len()), (sha256(&file), 50_000));
    assert!(preview.hint.contains("continue with line "), "{}", preview.hint);
    let last = read(run, v1::ReadRequest { start_line: Some(lines), ..ask::read("large") }).await;
    assert_eq!((last.content.as_str(), last.truncated), (line, false));

    let zeroes = read(run, ask::read("holes")).await;
    assert_eq!((zeroes.size_bytes, zeroes.binary, zeroes.content.as_str()), (256 * MIB, true, ""));
    assert_eq!(zeroes.sha256, sha256(&holes));
    assert_modest(&inside);
}

#[tokio::test]
async fn p2_a_line_without_an_end_is_cut_and_the_search_continues_in_other_files() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("after", "needle\n")]);
    let mut file = File::create(workspace.join("endless")).unwrap();
    file.write_all(b"first\nneedle").unwrap();
    let chunk = vec![b'x'; 1 << 20];
    for _ in 0..128 {
        file.write_all(&chunk).unwrap();
    }
    let size = file.metadata().unwrap().len();
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;

    let whole = read(run, ask::read("endless")).await;
    assert_eq!((whole.size_bytes, whole.total_lines, whole.truncated), (size, 2, true));
    assert_eq!(whole.content.len(), 50_000);
    assert!(whole.hint.contains("continue with line 2,"), "{}", whole.hint);
    let part = v1::ReadRequest { offset: Some(size - 10), limit: Some(10), ..ask::read("endless") };
    assert_eq!(read(run, part).await.content, "xxxxxxxxxx");
    let line = read(run, v1::ReadRequest { start_line: Some(2), ..ask::read("endless") }).await;
    assert!(line.truncated && line.content.starts_with("needlex"));
    assert!(line.hint.contains("continue at byte 50006"), "{}", line.hint);

    for (pattern, regex) in [("needle", false), ("ne+dle", true), ("x{50}$", true)] {
        let request = v1::GrepRequest { regex, ..ask::grep("@project", pattern) };
        let found = grep(run, request).await;
        let places: Vec<_> = found.matches.iter().map(|found| found.path.as_str()).collect();
        let expected: &[&str] = if pattern.starts_with('x') { &[] } else { &["@project/after"] };
        assert_eq!(places, expected, "{pattern}");
        assert!(found.hint.contains("not searched to their end"), "{}", found.hint);
    }
    assert_modest(&inside);
}

#[tokio::test]
async fn p2_binary_content_is_reported_and_returned_as_bytes() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let cases: [(&str, &[u8]); 6] = [
        ("nul", b"text\0text\n"),
        ("latin-1", b"caf\xe9 au lait\n"),
        ("utf-16", b"\xff\xfea\0b\0"),
        ("surrogate", b"\xed\xa0\x80\n"),
        ("overlong", b"\xc0\xaf\n"),
        ("cut", b"x\xe2\x82"),
    ];
    for (name, content) in cases {
        fs::write(workspace.join(name), content).unwrap();
    }
    let mut inside = enter(&daemon, &workspace).await;
    let run = &mut inside.run;
    for (name, content) in cases {
        let text = read(run, ask::read(name)).await;
        assert_eq!((text.binary, text.content.as_str(), text.size_bytes), (true, "", content.len() as u64));
        assert!(text.hint.contains("not UTF-8 text"), "{name}: {}", text.hint);
        let encoding = ContentEncoding::Base64.into();
        let bytes = read(run, v1::ReadRequest { encoding, ..ask::read(name) }).await;
        assert!(!bytes.binary && !bytes.content.is_empty(), "{name}: {bytes:?}");
        assert_eq!(bytes.sha256, text.sha256);
    }
    // Text in another encoding is searched, its stray bytes shown as what they are; what has a NUL is not.
    let found = grep(run, ask::grep("@project", "au lait")).await;
    assert_eq!(found.matches.len(), 1);
    assert_eq!(found.matches[0].text, "caf\u{fffd} au lait");
    assert_eq!(grep(run, ask::grep("@project", "text")).await.matches, []);
    assert_modest(&inside);
}

#[tokio::test]
async fn p2_unreadable_files_are_reported_and_hide_no_others() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace(
        "w",
        &[("a/seen", "needle\n"), ("file", "needle\n"), ("closed/in", "needle\n"), ("named/in", "needle\n")],
    );
    fs::create_dir(workspace.join("entered")).unwrap();
    fs::write(workspace.join("entered/in"), "needle\n").unwrap();
    fs::write(workspace.join("strange"), "needle\n").unwrap();
    let mut inside = enter(&daemon, &workspace).await;
    // Names without content, content without names, and neither; and a file of somebody else.
    for (name, mode) in
        [("file", 0o000), ("closed", 0o000), ("named", 0o444), ("entered", 0o111), ("strange", 0o600)]
    {
        fs::set_permissions(workspace.join(name), Permissions::from_mode(mode)).unwrap();
    }
    chown(workspace.join("strange"), Some(0), Some(0)).unwrap();
    let run = &mut inside.run;
    for operation in [
        calls::read("file"),
        calls::read("strange"),
        calls::read("closed/in"),
        calls::read("named/in"),
        calls::grep("file", "needle"),
        calls::list("closed"),
        calls::list("named"),
        calls::list("entered"),
    ] {
        let failure = look(run, operation.clone()).await.unwrap_err();
        assert_eq!(failure.reason, "PERMISSION_DENIED", "{operation:?}: {failure:?}");
        assert!(failure.message.ends_with("permission denied"), "{}", failure.message);
    }
    assert_eq!(read(run, ask::read("entered/in")).await.content, "needle\n");

    let found = grep(run, ask::grep("@project", "needle")).await;
    let places: Vec<_> = found.matches.iter().map(|found| found.path.as_str()).collect();
    assert_eq!(places, ["@project/a/seen"]);
    assert_eq!(found.files_skipped, 4, "file, strange, the probe, and what is only named");
    assert!(found.hint.contains("unreadable"), "{}", found.hint);
    let paths = glob(run, ask::glob("**/in")).await;
    assert_eq!(paths.paths, ["@project/named/in"], "names may be read there");
    assert!(paths.hint.contains("2 unreadable"), "{}", paths.hint);
    let deep = list(run, v1::ListRequest { depth: Some(4), ..ask::list("@project") }).await;
    assert!(deep.entries.iter().any(|entry| entry.path == "@project/a/seen"), "{deep:?}");
    assert!(deep.hint.contains("3 unreadable"), "{}", deep.hint);
    assert_modest(&inside);
}
