//! Whole archives: made, verified, restored, and changed in every way.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use audit::{Event, Kind, Writer};

use crate::format::{HEAD, Head, MANIFEST, VERSION};
use crate::restore::{RestoreError, continued, restore, settled};
use crate::{ArchiveError, Sources, check, write};

/// The drain of a node. A backup has it as it is, also one that no daemon can read.
const DRAIN: &str = r#"{"version":1,"drain":{"reason":"a new kernel""#;

/// A state directory with a log of some records, and the archive of it.
fn archive() -> Vec<u8> {
    let state = tempfile::tempdir().unwrap();
    let log = state.path().join("audit");
    fs::create_dir(&log).unwrap();
    fs::create_dir(state.path().join("keys")).unwrap();
    let (mut writer, _) = Writer::open(&log).unwrap();
    let signer = writer.signer(&state.path().join("keys/audit.key")).unwrap();
    for _ in 0..20 {
        writer.append(&Event::new(Kind::RunState)).unwrap();
    }
    let checkpoint = writer.checkpoint(&signer).unwrap().unwrap();
    writer.append(&Event::new(Kind::RunState)).unwrap();
    fs::write(state.path().join("seal.key"), [7; 32]).unwrap();
    fs::write(state.path().join("node.json"), DRAIN).unwrap();
    fs::write(state.path().join("store"), b"SQLite format 3\0 and more").unwrap();
    let last = log.join("00000000000000000001.jsonl");
    File::options().append(true).open(&last).unwrap().write_all(b"{\"half\":").unwrap();
    let head = Head {
        version: VERSION,
        backup_id: "0198a1b2-0000-7000-8000-00000000aaaa".into(),
        made_at_ms: 1,
        release: "0.1.0".into(),
        log_size: checkpoint.size,
        checkpoint: checkpoint.note,
        verifier_key: signer.verifier_key().to_string(),
    };
    let store = File::open(state.path().join("store")).unwrap();
    let mut bytes = Vec::new();
    write(&mut bytes, &head, &Sources { store, usage: None, state_dir: state.path(), log: &log }).unwrap();
    bytes
}

/// The members of an archive, in order.
fn members(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut tar = tar::Archive::new(archive);
    let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let name = String::from_utf8(entry.path_bytes().into_owned()).unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        (name, content)
    };
    tar.entries().unwrap().map(read).collect()
}

fn pack(members: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        // Names as they are, also those that `set_path` would refuse.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

/// Puts the true digest of each member into the manifest.
fn sealed_again(members: &mut [(String, Vec<u8>)]) {
    use sha2::{Digest as _, Sha256};
    let entries: BTreeMap<_, _> = members[1..members.len() - 1]
        .iter()
        .map(|(name, content)| {
            let sha256 = hex::encode(Sha256::digest(content));
            (name.clone(), serde_json::json!({ "bytes": content.len(), "sha256": sha256 }))
        })
        .collect();
    members.last_mut().unwrap().1 = serde_json::to_vec(&serde_json::json!({ "members": entries })).unwrap();
}

fn restored(bytes: &[u8]) -> (tempfile::TempDir, Result<crate::Restored, RestoreError>) {
    let place = tempfile::tempdir().unwrap();
    let result = restore(bytes, None, &place.path().join("state"));
    (place, result)
}

/// Must be refused, and leave nothing.
fn refused(bytes: &[u8]) -> String {
    let (place, result) = restored(bytes);
    let error = result.unwrap_err();
    let state = place.path().join("state");
    assert!(fs::read_dir(&state).unwrap().next().is_none(), "{error}: something is left");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{error}: something is beside it");
    error.to_string()
}

#[test]
fn a_backup_is_restored_with_private_files_and_a_log_that_verifies() {
    let archive = archive();
    let place = tempfile::tempdir().unwrap();
    let checked = check(archive.as_slice(), place.path()).unwrap();
    assert_eq!((checked.records, checked.last_sequence), (23, 23), "the half line is left out");
    let (place, result) = restored(&archive);
    let result = result.unwrap();
    let state = place.path().join("state");
    assert_eq!((result.last_sequence, &result.last_hash), (23, &checked.last_hash));
    assert!(audit::verify(&state.join("audit"), &mut |_| {}).unwrap().is_intact());
    assert_eq!(fs::read(state.join("seal.key")).unwrap(), [7; 32]);
    for name in ["store.db", "node.json", "seal.key", "keys/audit.key", "restored.json"] {
        let mode = fs::metadata(state.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    assert_eq!(continued(&state).unwrap(), Some(result));
    settled(&state).unwrap();
    assert_eq!(continued(&state).unwrap(), None);
    assert!(!state.join(crate::UNFINISHED).exists());
    let (mut writer, _) = Writer::open(&state.join("audit")).unwrap();
    assert_eq!(writer.append(&Event::new(Kind::DaemonStarted)).unwrap().sequence, 24, "the log goes on");
}

#[test]
fn a_drain_is_restored_as_it_was_and_none_is_made_where_there_was_none() {
    let mut members = members(&archive());
    let (place, result) = restored(&pack(&members));
    result.unwrap();
    assert_eq!(fs::read_to_string(place.path().join("state/node.json")).unwrap(), DRAIN);
    members.retain(|(name, _)| name != "node.json");
    sealed_again(&mut members);
    let (place, result) = restored(&pack(&members));
    result.unwrap();
    assert!(!place.path().join("state/node.json").exists());
}

#[test]
fn nothing_is_restored_over_files_or_beside_a_daemon() {
    let archive = archive();
    let state = tempfile::tempdir().unwrap();
    fs::write(state.path().join("store.db"), "precious").unwrap();
    let result = restore(archive.as_slice(), None, state.path());
    assert!(matches!(result, Err(RestoreError::NotEmpty(_))), "{result:?}");
    assert_eq!(fs::read(state.path().join("store.db")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 1);
}

#[test]
fn an_archive_that_is_cut_off_anywhere_is_refused() {
    let archive = archive();
    // The last two blocks of a tar are empty, and nothing depends on them.
    let end = archive.len() - 1024;
    for length in (0..end).step_by(997).chain([end - 1, end - 512]) {
        refused(&archive[..length]);
    }
}

#[test]
fn a_changed_byte_in_any_member_is_found() {
    let original = members(&archive());
    for (index, (name, content)) in original.iter().enumerate() {
        for at in [0, content.len() / 2, content.len() - 1] {
            let mut changed = original.clone();
            changed[index].1[at] ^= 1;
            let (_, result) = restored(&pack(&changed));
            // A description may change where nothing depends on it, such as the name of the release.
            assert!(result.is_err() || name == HEAD, "{name} at {at}");
        }
    }
}

#[test]
fn a_log_that_was_rewritten_with_its_digests_is_found_by_its_signatures() {
    let mut members = members(&archive());
    let log = members
        .iter()
        .position(|(name, _)| Path::new(name).extension().is_some_and(|kind| kind == "jsonl"))
        .unwrap();
    let text = String::from_utf8(members[log].1.clone()).unwrap();
    // Cut off after a whole record, before the checkpoint.
    members[log].1 = text.split_inclusive('\n').take(10).collect::<String>().into_bytes();
    sealed_again(&mut members);
    let why = refused(&pack(&members));
    assert!(why.contains("audit log"), "{why}");
}

#[test]
fn members_that_no_backup_has_are_refused() {
    let original = members(&archive());
    for name in
        ["../escaped", "/tmp/escaped", "bin/coffer-guest", "audit/../store.db", "restored.json", "store.db"]
    {
        let mut changed = original.clone();
        changed.insert(2, (name.to_owned(), b"x".to_vec()));
        sealed_again(&mut changed);
        let why = refused(&pack(&changed));
        assert!(why.contains("has the member"), "{name}: {why}");
    }
    let mut without = original.clone();
    without.retain(|(name, _)| name != "seal.key");
    sealed_again(&mut without);
    assert!(refused(&pack(&without)).contains("seal.key is missing"));
    let mut appended = original.clone();
    appended.push(("audit/removed".to_owned(), b"x".to_vec()));
    assert!(refused(&pack(&appended)).contains("not its last member"));
    let mut first = original;
    first.swap(0, 1);
    assert!(refused(&pack(&first)).contains("not its first member"));
}

#[test]
fn links_devices_and_headers_that_extend_others_are_refused() {
    let original = members(&archive());
    for kind in [
        tar::EntryType::Symlink,
        tar::EntryType::Link,
        tar::EntryType::Directory,
        tar::EntryType::Char,
        tar::EntryType::Fifo,
        tar::EntryType::GNULongName,
        tar::EntryType::GNUSparse,
        tar::EntryType::XHeader,
        tar::EntryType::XGlobalHeader,
    ] {
        let mut bytes = pack(&original[..1]);
        bytes.truncate(bytes.len() - 1024);
        let mut header = tar::Header::new_ustar();
        header.set_path("store.db").unwrap();
        header.set_link_name("/etc/passwd").unwrap();
        header.set_entry_type(kind);
        // More than there is: it must not be believed.
        header.set_size(1 << 40);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&pack(&original[1..]));
        assert!(refused(&bytes).contains("no regular file"), "{kind:?}");
    }
}

#[test]
fn lengths_are_bounded_before_they_are_believed() {
    for name in [HEAD, "node.json", "seal.key", MANIFEST] {
        let mut bytes = if name == HEAD { Vec::new() } else { pack(&members(&archive())[..1]) };
        bytes.truncate(bytes.len().saturating_sub(1024));
        let mut header = tar::Header::new_ustar();
        header.set_path(name).unwrap();
        header.set_size(1 << 33);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        assert!(refused(&bytes).contains("too long"), "{name}");
    }
}

#[test]
fn an_archive_with_another_digest_or_with_a_tail_is_refused() {
    use sha2::{Digest as _, Sha256};
    let mut archive = archive();
    let digest = hex::encode(Sha256::digest(&archive));
    let place = tempfile::tempdir().unwrap();
    restore(archive.as_slice(), Some(&digest), &place.path().join("one")).unwrap();
    let other = restore(archive.as_slice(), Some(&"0".repeat(64)), &place.path().join("two")).unwrap_err();
    assert!(other.to_string().contains(&digest), "{other}");
    assert!(fs::read_dir(place.path().join("two")).unwrap().next().is_none());
    archive.extend(vec![0; 100_000]);
    assert!(refused(&archive).contains("goes on after its end"));
}

/// An archive that looks into a directory at each read.
struct Watched<'a> {
    archive: &'a [u8],
    place: &'a Path,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        assert_eq!(fs::read_dir(self.place).unwrap().count(), 0, "a kill would leave this");
        self.archive.read(buffer)
    }
}

#[test]
fn a_verification_leaves_nothing_wherever_it_is_killed() {
    let archive = archive();
    let place = tempfile::tempdir().unwrap();
    let checked = check(Watched { archive: &archive, place: place.path() }, place.path()).unwrap();
    assert_eq!(checked.records, 23);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn another_version_is_named() {
    let mut members = members(&archive());
    members[0].1 = br#"{"version":2,"new":true}"#.to_vec();
    let why = refused(&pack(&members));
    assert!(why.contains("the form 2"), "{why}");
    let place = tempfile::tempdir().unwrap();
    let error = check(pack(&members).as_slice(), Path::new(place.path())).unwrap_err();
    assert!(matches!(error, ArchiveError::Version(2)), "{error:?}");
}
