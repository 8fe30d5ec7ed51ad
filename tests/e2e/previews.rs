//! Tests that the effect equals the preview: the git command applies the shown diff to the old state, and gets the new one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::patch_request::Change;
use harness::{Daemon, calls, git, v1};

const FILES: [(&str, &str); 5] = [
    ("a.txt", "one\ntwo\nthree\n"),
    ("crlf.txt", "one\r\ntwo\r\n"),
    ("no newline.txt", "last line"),
    ("gone.txt", "bye\n"),
    ("src/deep/b.rs", "fn b() {\n    1\n}\n"),
];

/// Files by name, with their content.
fn tree(directory: &Path, under: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = format!("{under}{}", entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            tree(&entry.path(), &format!("{name}/"), found);
        } else {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}

fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    tree(directory, "", &mut found);
    found
}

/// The files after `difference`, by git.
fn applied(before: &BTreeMap<String, Vec<u8>>, difference: &str) -> BTreeMap<String, Vec<u8>> {
    let place = tempfile::tempdir().unwrap();
    for (name, content) in before {
        let path = place.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    let shown = tempfile::NamedTempFile::new().unwrap();
    fs::write(shown.path(), difference).unwrap();
    git(place.path(), &["apply", shown.path().to_str().unwrap()]);
    files(place.path())
}

fn patch(change: Change) -> Operation {
    Operation::Patch(v1::PatchRequest { change: Some(change) })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_shown_diff_turns_the_old_state_into_the_new_one() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &FILES);
    let mut run = daemon.run("review", &workspace).await;
    let envelope = "*** Begin Patch\n*** Update File: a.txt\n-uno\n+eins\n*** Delete File: gone.txt\n\
                    *** Add File: n/new.txt\n+new\n*** Update File: src/deep/b.rs\n-    1\n+    2\n*** End Patch\n";
    let unified = "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,4 @@\n-one\n+uno\n+mas\n two\n three\n";
    let many = (0..2_000).map(|line| format!("line {line}\n")).collect::<Vec<_>>().concat();
    for (what, operation) in [
        ("a new file", calls::write("new.txt", "first\nsecond\n")),
        ("a new file without a last newline", calls::write("bare.txt", "no newline")),
        ("another content", calls::write("no newline.txt", "last line\nand one more\n")),
        ("one with long content", calls::write("src/deep/b.rs", &format!("fn b() {{\n    1\n}}\n{many}"))),
        ("one line", calls::replace("crlf.txt", "two", "zwei")),
        ("several lines", calls::replace("src/deep/b.rs", "line 7\nline 8\n", "")),
        ("a unified diff", patch(Change::UnifiedDiff(unified.to_owned()))),
        ("several files", patch(Change::Envelope(envelope.to_owned()))),
    ] {
        let before = files(&workspace);
        let (approval, response) = run.consented(operation).await;
        assert_eq!(response.status(), Status::Succeeded, "{what}: {:?}", response.error);
        let after = files(&workspace);
        assert_ne!(before, after, "{what} changes something");
        assert_eq!(applied(&before, &approval.preview), after, "{what}: {}", approval.preview);
    }
}
