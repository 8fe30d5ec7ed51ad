use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::PathBuf;

use super::*;
use crate::tree_stream::MOST_OF_NAME;

const ALL: TreeBounds = TreeBounds { bytes: u64::MAX, files: u64::MAX };

/// A tree with one name of each kind, and an empty directory.
fn trees() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let place = tempfile::tempdir().unwrap();
    let (from, into) = (place.path().join("from"), place.path().join("into"));
    fs::create_dir_all(from.join("a/empty")).unwrap();
    fs::create_dir(&into).unwrap();
    fs::write(from.join("a/file"), vec![7; 3 * PIECE + 1]).unwrap();
    fs::write(from.join("a.b"), "").unwrap();
    fs::write(from.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(from.join("run.sh"), Permissions::from_mode(0o555)).unwrap();
    fs::set_permissions(from.join("a"), Permissions::from_mode(0o550)).unwrap();
    symlink("/etc/passwd", from.join("link")).unwrap();
    (place, from, into)
}

fn sent(from: &Path) -> (Base, Vec<u8>) {
    let mut stream = Vec::new();
    let found = crate::tree::send_from(from, &mut stream, ALL, || false).unwrap();
    (found, stream)
}

fn received(stream: &[u8], into: &Path, most: TreeBounds) -> Result<Base, ReceiveFailure> {
    receive_in(stream, into, most, || false)
}

/// Receives what should be refused, in a directory of its own.
fn refused(stream: &[u8]) -> ReceiveFailure {
    let place = tempfile::tempdir().unwrap();
    received(stream, place.path(), ALL).unwrap_err()
}

/// A stream of these entries within the topmost directory.
fn stream(entries: &[(Kind, &[u8], &[u8])]) -> Vec<u8> {
    let mut bytes = FORMAT.to_vec();
    let entry = |kind, name: &[u8], rest: &[u8]| Entry {
        kind,
        mode: if kind == Kind::Link { 0 } else { 0o755 },
        modified: (1, 2),
        name: name.to_vec(),
        rest: rest.len() as u64,
    };
    entry(Kind::Directory, b"", b"").write(&mut bytes).unwrap();
    for (kind, name, rest) in entries {
        match kind {
            Kind::Up => Entry::up().write(&mut bytes).unwrap(),
            kind => entry(*kind, name, rest).write(&mut bytes).unwrap(),
        }
        bytes.extend_from_slice(rest);
    }
    Entry::up().write(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_tree_that_is_received_is_the_one_that_was_sent() {
    let (_place, from, into) = trees();
    let (found, stream) = sent(&from);
    let made = received(&stream, &into, ALL).unwrap();
    assert_eq!(made, Base { left_out: 0, ..found });
    let (again, same) = sent(&into);
    assert_eq!((again.digest, same), (made.digest, stream), "also with its modes and times");
    assert_eq!(fs::read_link(into.join("link")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(fs::metadata(into.join("a")).unwrap().permissions().mode() & 0o7777, 0o550);
    let modified = |tree: &Path| fs::metadata(tree.join("a/file")).unwrap().mtime_nsec();
    assert_eq!(modified(&from), modified(&into));
}

#[test]
fn a_stream_that_is_cut_anywhere_is_refused() {
    let (_place, from, _) = trees();
    let (_, stream) = sent(&from);
    for length in (0..stream.len()).step_by(997).chain([0, 15, 16, 43, stream.len() - 1]) {
        assert!(matches!(refused(&stream[..length]), ReceiveFailure::Cut), "{length}");
    }
    let mut longer = stream;
    longer.push(0);
    assert!(matches!(refused(&longer), ReceiveFailure::Form("more follows its end")));
}

/// A reader that understood a stream otherwise than its sender would have another digest, or none.
#[test]
fn any_changed_byte_is_refused_or_makes_the_tree_whose_digest_is_given() {
    let (_place, from, _) = trees();
    fs::write(from.join("a/file"), "content").unwrap();
    let (_, stream) = sent(&from);
    let mut accepted = 0;
    for at in 0..stream.len() {
        for flip in [0x01, 0x40, 0x80] {
            let mut changed = stream.clone();
            changed[at] ^= flip;
            let place = tempfile::tempdir().unwrap();
            let into = place.path().join("into");
            fs::create_dir(&into).unwrap();
            if let Ok(found) = received(&changed, &into, ALL) {
                accepted += 1;
                // A directory that its owner cannot read is no walk.
                let again = crate::tree::send_from(&into, &mut io::sink(), ALL, || false);
                assert!(again.is_err() || again.unwrap().digest == found.digest, "byte {at}, {flip:#x}");
            }
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "byte {at}: a name elsewhere");
        }
    }
    assert!(accepted > 0, "contents and times may be others");
}

#[test]
fn names_that_lead_elsewhere_come_twice_or_have_no_order_are_refused() {
    let file = |name: &'static [u8]| (Kind::File, name, &b"x"[..]);
    for name in [&b""[..], b".", b"..", b"a/b", b"/etc/passwd", b"../x", b"a\0b"] {
        assert!(matches!(refused(&stream(&[(Kind::File, name, b"x")])), ReceiveFailure::Form(_)), "{name:?}");
        assert!(matches!(refused(&stream(&[(Kind::Directory, name, b"")])), ReceiveFailure::Form(_)));
    }
    let temporary = b".cofferdam-tmp-00112233445566778899aabbccddeeff";
    assert!(matches!(refused(&stream(&[(Kind::File, temporary, b"x")])), ReceiveFailure::Form(_)));
    for pair in [[file(b"a"), file(b"a")], [file(b"b"), file(b"a")]] {
        assert!(matches!(refused(&stream(&pair)), ReceiveFailure::Form(_)));
    }
    // A file through a link of the stream itself.
    let place = tempfile::tempdir().unwrap();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let target = outside.as_os_str().as_encoded_bytes();
    let through = stream(&[(Kind::Link, b"a", target), (Kind::Directory, b"a", b""), file(b"x")]);
    assert!(matches!(refused(&through), ReceiveFailure::Form(_)));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn other_forms_than_that_of_a_base_are_refused() {
    let mut other = stream(&[]);
    other[15] = b'2';
    assert!(matches!(refused(&other), ReceiveFailure::Form("it begins with another format")));
    let mut mode = stream(&[]);
    mode[FORMAT.len() + 1..][..4].copy_from_slice(&0o2755_u32.to_be_bytes());
    assert!(matches!(refused(&mode), ReceiveFailure::Form(_)));
    for entry in
        [(Kind::Directory, &b"d"[..], &b"x"[..]), (Kind::Link, b"l", b""), (Kind::Link, b"l", b"a\0b")]
    {
        assert!(matches!(refused(&stream(&[entry])), ReceiveFailure::Form(_)), "{entry:?}");
    }
    let long = [b'x'; 5_000];
    assert!(matches!(refused(&stream(&[(Kind::Link, b"l", &long)])), ReceiveFailure::Form(_)));
    let deep: Vec<_> = (0..=MAX_DEPTH).map(|_| (Kind::Directory, &b"d"[..], &b""[..])).collect();
    assert!(matches!(refused(&stream(&deep)), ReceiveFailure::Form(_)));
    let longest = [b'n'; MOST_OF_NAME];
    let place = tempfile::tempdir().unwrap();
    assert!(received(&stream(&[(Kind::File, &longest, b"x")]), place.path(), ALL).is_ok());
}

#[test]
fn bounds_hold_before_a_file_is_made() {
    let entries = stream(&[(Kind::File, b"a", b"12345"), (Kind::File, b"b", b"12345")]);
    let place = tempfile::tempdir().unwrap();
    let most = TreeBounds { bytes: 9, files: 3 };
    assert!(matches!(
        received(&entries, place.path(), most),
        Err(ReceiveFailure::Tree(TreeFailure::Bytes(9)))
    ));
    assert!(!place.path().join("b").exists());
    let place = tempfile::tempdir().unwrap();
    let most = TreeBounds { bytes: 10, files: 2 };
    assert!(matches!(
        received(&entries, place.path(), most),
        Err(ReceiveFailure::Tree(TreeFailure::Files(2)))
    ));
    assert!(!place.path().join("b").exists());
    let place = tempfile::tempdir().unwrap();
    let made = received(&entries, place.path(), TreeBounds { bytes: 10, files: 3 }).unwrap();
    assert_eq!((made.files, made.size_bytes), (3, 10));
    // A length that no disk has costs nothing.
    let mut huge = FORMAT.to_vec();
    let top = Entry { kind: Kind::Directory, mode: 0o755, ..Entry::up() };
    top.write(&mut huge).unwrap();
    Entry { kind: Kind::File, name: b"a".to_vec(), rest: u64::MAX, ..top }.write(&mut huge).unwrap();
    let most = TreeBounds { bytes: 1 << 30, files: 9 };
    let place = tempfile::tempdir().unwrap();
    assert!(matches!(received(&huge, place.path(), most), Err(ReceiveFailure::Tree(TreeFailure::Bytes(_)))));
}
