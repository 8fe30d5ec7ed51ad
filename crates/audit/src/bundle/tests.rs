use std::collections::BTreeMap;

use serde_json::json;

use super::{BundleError, RECORDS, Sealed, manifest, verify, write};
use crate::event::{Event, Kind};
use crate::inclusion::Prover;
use crate::note::VerifierKey;
use crate::reader::Reader;
use crate::writer::Writer;

/// A log with two runs in it, and a bundle of one of them.
fn bundle() -> (Vec<u8>, VerifierKey, usize) {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let (mut writer, _) = Writer::open(&log).unwrap();
    let signer = writer.signer(&directory.path().join("audit.key")).unwrap();
    for n in 0..50 {
        let run = if n % 3 == 0 { "run-a" } else { "run-b" };
        writer.append(&Event::new(Kind::CallIntent).run(run).call(n.to_string())).unwrap();
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
    let members = BTreeMap::from([
        (RECORDS.to_owned(), records.into_bytes()),
        ("run.json".to_owned(), b"{\"run\":1}".to_vec()),
        ("diff.patch".to_owned(), vec![0xff; 3_000]),
    ]);
    let (text, hash) = manifest(writer.log_id(), "run-a", &members).unwrap();
    let details = json!({ "manifest_sha256": hash.to_string() });
    let sealed = writer.append(&Event::new(Kind::BundleCreated).run("run-a").details(details)).unwrap();
    sequences.push(sealed.sequence);
    let checkpoint = writer.checkpoint(&signer).unwrap().unwrap();
    let mut prover = Prover::new(sequences.iter().copied());
    let mut reader = Reader::from(&log, 0);
    let mut seal = String::new();
    while reader.next_sequence() <= checkpoint.size {
        let (record, line) = reader.next_with_line().unwrap().unwrap();
        prover.push(record.hash);
        if record.sequence == sealed.sequence {
            line.clone_into(&mut seal);
        }
    }
    let key = signer.verifier_key().clone();
    let sealed =
        Sealed { seal: &seal, checkpoint: &checkpoint, key: &key, prover: &prover, sequences: &sequences };
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
        assert_eq!(verified.members, ["diff.patch", "records.jsonl", "run.json"]);
    }
    let (other, other_key, _) = self::bundle();
    assert!(matches!(verify(&bundle[..], Some(&other_key)), Err(BundleError::Signature(_))));
    // Sealed by another log: whole in itself.
    assert!(verify(&other[..], None).is_ok());
}

#[test]
fn tampering_with_any_member_is_found_and_named() {
    let (bundle, key, _) = bundle();
    assert_eq!(names(&bundle).len(), 8);
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
                    let by_record = ["seal.json", "proofs.json"].contains(&target.as_str());
                    assert!(by_record || said.contains(&target), "{target}: {said}");
                }
            }
        }
        let without = remade(&bundle, |name, content| (name != target).then_some(content));
        let said = verify(&without[..], Some(&key)).unwrap_err().to_string();
        assert_eq!(said, format!("{target} is missing"));
    }
}

#[test]
fn a_manifest_that_was_made_anew_is_none_of_the_logs() {
    let (bundle, key, _) = bundle();
    let forged = remade(&bundle, |name, content| match name {
        "run.json" => Some(b"{\"run\":2}".to_vec()),
        "manifest.json" => {
            let hash = |text: &[u8]| crate::Hash::of(text).to_string();
            let text = String::from_utf8(content).unwrap();
            Some(text.replace(&hash(b"{\"run\":1}"), &hash(b"{\"run\":2}")).into_bytes())
        }
        _ => Some(content),
    });
    assert!(matches!(verify(&forged[..], Some(&key)), Err(BundleError::Manifest)));
}

#[test]
fn what_is_no_bundle_is_refused() {
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
