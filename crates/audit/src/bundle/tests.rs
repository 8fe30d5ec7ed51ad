use std::collections::BTreeMap;
use std::io::Write as _;
use std::num::NonZeroU16;

use serde_json::json;

use super::{
    BundleError, Entry, Member, MemberWriter, Origin, POLICY_DOMAIN, RECORDS, Sealed, manifest,
    policy_member, verify, write,
};
use crate::event::{Decision, Event, Kind, Verdict};
use crate::hash::Hash;
use crate::inclusion::Prover;
use crate::note::VerifierKey;
use crate::reader::Reader;
use crate::writer::Writer;

const POLICY: &[u8] = b"{\"profiles\":{}}";

fn policy_digest() -> String {
    Hash::of(&[POLICY_DOMAIN, POLICY].concat()).to_string()
}

/// A log with two runs in it, and a bundle of one of them.
fn bundle() -> (Vec<u8>, VerifierKey, usize) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let (mut writer, _) = Writer::open(&log).unwrap();
    let signer = writer.signer(&directory.path().join("audit.key")).unwrap();
    for n in 0..50 {
        let run = if n % 3 == 0 { "run-a" } else { "run-b" };
        let kind = if n == 0 { Kind::RunCreated } else { Kind::CallIntent };
        let digest = if n < 30 { policy_digest() } else { "another".to_owned() };
        let decision = Decision::new(Verdict::Allow).policy_digest(digest);
        writer.append(&Event::new(kind).run(run).call(n.to_string()).decision(decision)).unwrap();
    }
    let mut records = String::new();
    let mut sequences = Vec::new();
    let mut reader = Reader::from(&log, 0);
    while let Some((record, line)) = reader.next_with_line().unwrap() {
        if record.event.run_id.as_deref() == Some("run-a") {
            records.push_str(line);
            records.push('\n');
            sequences.push(record.sequence);
        }
    }
    let count = sequences.len();
    // As the daemon does: what may be long lies in a file.
    let mut spooled = MemberWriter::new(tempfile::tempfile().unwrap());
    spooled.write_all(records.as_bytes()).unwrap();
    let members = BTreeMap::from([
        (RECORDS.to_owned(), spooled.finish().unwrap()),
        ("run.json".to_owned(), Member::of(b"{\"run\":1}".to_vec())),
        (policy_member(&policy_digest()), Member::of(POLICY.to_vec())),
        ("diff.patch".to_owned(), Member::of(vec![0xff; 3_000])),
    ]);
    let origin = Origin { node: NonZeroU16::new(7), instance: "0a1b" };
    let (text, hash) = manifest(writer.log_id(), "run-a", origin, &members).unwrap();
    let details = json!({ "manifest_sha256": hash.to_string() });
    let sealed = writer.append(&Event::new(Kind::BundleCreated).run("run-a").details(details)).unwrap();
    sequences.push(sealed.sequence);
    let checkpoint = writer.checkpoint(&signer).unwrap().unwrap();
    let mut prover = Prover::of(&log).unwrap();
    let mut reader = Reader::from(&log, 0);
    let mut seal = String::new();
    while reader.next_sequence() <= checkpoint.size {
        let (record, line) = reader.next_with_line().unwrap().unwrap();
        prover.push(record.hash, sequences.contains(&record.sequence));
        if record.sequence == sealed.sequence {
            line.clone_into(&mut seal);
        }
    }
    let key = signer.verifier_key().clone();
    assert_eq!(prover.root(), Some(checkpoint.root));
    let proof = prover.into_proof();
    let sealed = Sealed { seal: &seal, checkpoint: &checkpoint, key: &key, proof: &proof };
    let mut out = Vec::new();
    write(&mut out, &text, &members, &sealed).unwrap();
    (out, key, count)
}

/// The same archive with each member passed through `change`; a member that it makes nothing of is left out.
fn remade(bundle: &[u8], mut change: impl FnMut(&str, Vec<u8>) -> Option<Vec<u8>>) -> Vec<u8> {
    let mut archive = tar::Archive::new(bundle);
    let mut out = tar::Builder::new(Vec::new());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        let Some(content) = change(&name, content) else { continue };
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        out.append_data(&mut header, name, &content[..]).unwrap();
    }
    out.into_inner().unwrap()
}

/// The same archive with a member under another name.
fn renamed(bundle: &[u8], from: &str, to: &str) -> Vec<u8> {
    let mut archive = tar::Archive::new(bundle);
    let mut out = tar::Builder::new(Vec::new());
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut header = tar::Header::new_ustar();
        header.set_size(entry.size());
        out.append_data(&mut header, if name == from { to } else { &name }, entry).unwrap();
    }
    out.into_inner().unwrap()
}

fn names(bundle: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    remade(bundle, |name, content| {
        names.push(name.to_owned());
        Some(content)
    });
    names
}

#[test]
fn a_bundle_is_verified_with_the_key_and_without() {
    let (bundle, key, records) = bundle();
    for key in [Some(&key), None] {
        let verified = verify(&bundle[..], key).unwrap();
        assert_eq!((verified.run_id.as_str(), verified.records), ("run-a", records));
        assert_eq!((verified.node.map(NonZeroU16::get), verified.instance.as_str()), (Some(7), "0a1b"));
        let policy = policy_member(&policy_digest());
        assert_eq!(verified.members, ["diff.patch", policy.as_str(), "records.jsonl", "run.json"]);
        assert_eq!((verified.from_beginning, verified.missing_policies), (true, vec!["another".to_owned()]));
    }
    let (other, other_key, _) = self::bundle();
    assert!(matches!(verify(&bundle[..], Some(&other_key)), Err(BundleError::Signature(_))));
    // Sealed by another log: whole in itself.
    assert!(verify(&other[..], None).is_ok());
}

#[test]
fn tampering_with_any_member_is_found_and_named() {
    let (bundle, key, _) = bundle();
    assert_eq!(names(&bundle).len(), 9);
    for target in names(&bundle) {
        for at in [0, 1, 7, 20] {
            let bent = remade(&bundle, |name, mut content| {
                if name == target {
                    let at = at * (content.len() - 1) / 20;
                    content[at] ^= 1;
                }
                Some(content)
            });
            match verify(&bent[..], Some(&key)) {
                // The key that it carries is not the one that counts.
                Ok(_) => assert_eq!(target, "key.txt"),
                Err(error) => {
                    let said = error.to_string();
                    assert!(said.contains(&target), "{target}: {said}");
                }
            }
        }
        // Its name alone.
        let bent = renamed(&bundle, &target, "x");
        let said = verify(&bent[..], Some(&key)).unwrap_err().to_string();
        assert!(said.contains(&target) || said.contains("x is not in its manifest"), "{target}: {said}");
        let without = remade(&bundle, |name, content| (name != target).then_some(content));
        let said = verify(&without[..], Some(&key)).unwrap_err().to_string();
        assert_eq!(said, format!("{target} is missing"));
    }
}

#[test]
fn rebuilt_manifest_is_refused() {
    let (bundle, key, _) = bundle();
    let forged = remade(&bundle, |name, content| match name {
        "run.json" => Some(b"{\"run\":2}".to_vec()),
        "manifest.json" => {
            let hash = |text: &[u8]| Hash::of(text).to_string();
            let text = String::from_utf8(content).unwrap();
            Some(text.replace(&hash(b"{\"run\":1}"), &hash(b"{\"run\":2}")).into_bytes())
        }
        _ => Some(content),
    });
    assert!(matches!(verify(&forged[..], Some(&key)), Err(BundleError::Manifest)));
}

#[test]
fn invalid_bundles_are_refused() {
    let (bundle, key, _) = bundle();
    let with = |name: &str, kind: tar::EntryType| {
        let mut out = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        let bytes = header.as_gnu_mut().unwrap();
        bytes.name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_size(0);
        header.set_cksum();
        out.append(&header, &b""[..]).unwrap();
        out.into_inner().unwrap()
    };
    for (name, kind) in [
        ("../manifest.json", tar::EntryType::Regular),
        ("/manifest.json", tar::EntryType::Regular),
        ("a/b", tar::EntryType::Regular),
        ("manifest.json", tar::EntryType::Symlink),
        ("manifest.json", tar::EntryType::Directory),
        ("..", tar::EntryType::Regular),
    ] {
        assert!(matches!(verify(&with(name, kind)[..], None), Err(BundleError::Shape(_))), "{name}");
    }
    for cut in [0, 100, 600, bundle.len() / 2] {
        assert!(verify(&bundle[..cut], Some(&key)).is_err(), "{cut}");
    }
    let twice = [&bundle[..bundle.len() - 1024], &bundle[..]].concat();
    assert!(matches!(verify(&twice[..], Some(&key)), Err(BundleError::Shape(_))));
    assert!(verify(&[7_u8; 4096][..], None).is_err());
}

#[test]
fn a_policy_matches_the_digest_in_its_name() {
    let (bundle, key, _) = bundle();
    let other = b"{\"profiles\":{\"open\":1}}";
    // Whoever makes a bundle can put anything into its manifest, but not another policy under this digest.
    let lied = remade(&bundle, |name, content| {
        Some(if name.starts_with("policy-") { other.to_vec() } else { content })
    });
    let error = verify(&lied[..], Some(&key)).unwrap_err();
    assert!(matches!(&error, BundleError::Changed(name) if name.starts_with("policy-")), "{error}");
    let honest = Entry { bytes: other.len() as u64, sha256: Hash::of(other).to_string() };
    let mut records = super::read::Records::new("run-a", String::new());
    let read = super::read::read_member(&policy_member(&policy_digest()), &other[..], &honest, &mut records);
    assert!(
        matches!(&read, Err(BundleError::Shape(what)) if what.contains("does not match the digest")),
        "{read:?}"
    );
}

#[test]
fn a_run_after_removed_segments_can_be_proved() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let limits = crate::Limits { segment_bytes: 4_000, ..crate::Limits::default() };
    let (mut writer, _) = Writer::open_with(&log, limits).unwrap();
    let signer = writer.signer(&directory.path().join("audit.key")).unwrap();
    for n in 0..100 {
        writer.append(&Event::new(Kind::CallIntent).run("run-a").call(n.to_string())).unwrap();
    }
    let covered = writer.checkpoint(&signer).unwrap().unwrap().size;
    let policy = crate::Policy { keep_bytes: Some(8_000), ..crate::Policy::default() };
    let removal = crate::removal(&log, &policy, covered).unwrap().unwrap();
    writer.remove(&removal).unwrap();
    crate::sweep(&log).unwrap();
    let checkpoint = writer.checkpoint(&signer).unwrap().unwrap();

    let mut prover = Prover::of(&log).unwrap();
    assert_eq!(prover.size(), removal.last_sequence());
    let mut records = Vec::new();
    let mut reader = Reader::from(&log, prover.size());
    while prover.size() < checkpoint.size {
        let (record, _) = reader.next_with_line().unwrap().unwrap();
        let is_wanted = record.event.run_id.is_some();
        prover.push(record.hash, is_wanted);
        records.extend(is_wanted.then_some((record.sequence, record.hash)));
    }
    assert!(!records.is_empty() && removal.last_sequence() > 10);
    assert_eq!(crate::root_of(checkpoint.size, &records, &prover.into_proof()), Some(checkpoint.root));
}
