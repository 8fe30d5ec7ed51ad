//! Verifying a bundle: hostile until proved, and bounded before anything is believed.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};

use super::{CHECKPOINT, KEY, LARGEST, MANIFEST, MOST, Manifest, PROOFS, Proofs, RECORDS, SEAL, is_name};
use crate::chain::Damage;
use crate::checkpoint::Checkpoint;
use crate::event::Kind;
use crate::hash::Hash;
use crate::inclusion::is_included;
use crate::note::VerifierKey;
use crate::record::Record;

/// Why a bundle is not believed. Names the member.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// It cannot be read as an archive.
    #[error("it is no bundle: the archive cannot be read")]
    Archive(#[source] io::Error),
    /// The archive holds what a bundle does not.
    #[error("it is no bundle: {0}")]
    Shape(String),
    /// A member that has to be there is not.
    #[error("{0} is missing")]
    Missing(String),
    /// A member is not what its maker put in.
    #[error("{0} was changed: it is not what the manifest says")]
    Changed(String),
    /// A member cannot be read.
    #[error("{0} cannot be read: it was changed, or made by something else")]
    Malformed(&'static str),
    /// The manifest is not the one that the log knows.
    #[error("manifest.json was changed: it is not the one that the log has on record")]
    Manifest,
    /// A record is none.
    #[error("record {line} of {member} {damage}")]
    Record {
        /// Where it stands.
        member: &'static str,
        /// Its line, from 1.
        line: usize,
        /// What is wrong.
        damage: Damage,
    },
    /// A record is not shown to be in the log.
    #[error("record {0} is not proved to be in the log under the checkpoint")]
    Unproved(u64),
    /// The checkpoint has no good signature.
    #[error("checkpoint.txt is not signed by {0}")]
    Signature(String),
}

/// What a bundle that is believed says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The run.
    pub run_id: String,
    /// The run's records.
    pub records: usize,
    /// The members that the manifest names.
    pub members: Vec<String>,
    /// The checkpoint that proves them.
    pub checkpoint: Checkpoint,
    /// Whose signature it has, as a verifier key.
    pub key: String,
}

/// Verifies a bundle. Without a `key` it is held against the key that it carries itself, which proves that it is whole
/// and not whose it is: the caller should say so.
pub fn verify(bundle: impl Read, key: Option<&VerifierKey>) -> Result<Verified, BundleError> {
    let members = unpack(bundle)?;
    let member = |name: &'static str| {
        members.get(name).map(Vec::as_slice).ok_or_else(|| BundleError::Missing(name.to_owned()))
    };
    let text =
        |name: &'static str| std::str::from_utf8(member(name)?).map_err(|_| BundleError::Malformed(name));

    let manifest: Manifest =
        serde_json::from_slice(member(MANIFEST)?).map_err(|_| BundleError::Malformed(MANIFEST))?;
    let carried: VerifierKey = text(KEY)?.trim_end().parse().map_err(|_| BundleError::Malformed(KEY))?;
    let key = key.unwrap_or(&carried);
    let checkpoint = Checkpoint::parse(text(CHECKPOINT)?).ok_or(BundleError::Malformed(CHECKPOINT))?;
    if !checkpoint.is_signed_by(key) {
        return Err(BundleError::Signature(key.to_string()));
    }
    let proofs: Proofs =
        serde_json::from_slice(member(PROOFS)?).map_err(|_| BundleError::Malformed(PROOFS))?;
    if proofs.size != checkpoint.size {
        return Err(BundleError::Malformed(PROOFS));
    }

    let seal = record(SEAL, 1, text(SEAL)?)?;
    proved(&seal, &checkpoint, &proofs)?;
    let said = seal.event.details.as_ref().and_then(|details| details["manifest_sha256"].as_str());
    let sealed = seal.event.kind == Kind::BundleCreated
        && seal.event.run_id.as_deref() == Some(&manifest.run_id)
        && manifest.log == checkpoint.log.to_string()
        && manifest.v == 1
        && said == Some(&Hash::of(member(MANIFEST)?).to_string());
    if !sealed {
        return Err(BundleError::Manifest);
    }

    let own = BTreeSet::from([MANIFEST, SEAL, PROOFS, CHECKPOINT, KEY]);
    for (name, said) in &manifest.members {
        let content = members.get(name).ok_or_else(|| BundleError::Missing(name.clone()))?;
        if content.len() as u64 != said.bytes || Hash::of(content).to_string() != said.sha256 {
            return Err(BundleError::Changed(name.clone()));
        }
    }
    for name in members.keys() {
        if !own.contains(name.as_str()) && !manifest.members.contains_key(name) {
            return Err(BundleError::Shape(format!("{name} is not in its manifest")));
        }
    }

    if !manifest.members.contains_key(RECORDS) {
        return Err(BundleError::Missing(RECORDS.to_owned()));
    }
    let mut before = 0;
    let mut records = 0;
    for (line, text) in text(RECORDS)?.lines().enumerate() {
        let record = record(RECORDS, line + 1, text)?;
        if record.event.run_id.as_deref() != Some(&manifest.run_id) || record.sequence <= before {
            return Err(BundleError::Shape(format!(
                "record {} is another run's, or out of order",
                record.sequence
            )));
        }
        proved(&record, &checkpoint, &proofs)?;
        before = record.sequence;
        records += 1;
    }
    let members = manifest.members.into_keys().collect();
    Ok(Verified { run_id: manifest.run_id, records, members, checkpoint, key: key.to_string() })
}

fn record(member: &'static str, line: usize, text: &str) -> Result<Record, BundleError> {
    Record::from_line(text).map_err(|damage| BundleError::Record { member, line, damage })
}

fn proved(record: &Record, checkpoint: &Checkpoint, proofs: &Proofs) -> Result<(), BundleError> {
    let unproved = || BundleError::Unproved(record.sequence);
    let proof = proofs.proofs.get(&record.sequence).ok_or_else(unproved)?;
    let proof: Vec<Hash> =
        proof.iter().map(|hash| hash.parse()).collect::<Result<_, _>>().map_err(|_| unproved())?;
    let included = is_included(record.hash, record.sequence, checkpoint.size, &proof, checkpoint.root);
    if record.log == checkpoint.log && included { Ok(()) } else { Err(unproved()) }
}

/// Plain files with plain names, once each, and no more than a bundle may hold. Nothing is written anywhere.
fn unpack(bundle: impl Read) -> Result<BTreeMap<String, Vec<u8>>, BundleError> {
    let mut archive = tar::Archive::new(bundle.take(LARGEST));
    let mut members = BTreeMap::new();
    for entry in archive.entries().map_err(BundleError::Archive)? {
        let mut entry = entry.map_err(BundleError::Archive)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !is_name(&name) {
            return Err(BundleError::Shape(format!("{name:?} is no plain file with a plain name")));
        }
        if members.len() >= MOST {
            return Err(BundleError::Shape(format!("it has more than {MOST} members")));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(BundleError::Archive)?;
        if content.len() as u64 != entry.size() {
            return Err(BundleError::Shape(format!("{name} is cut short")));
        }
        if members.insert(name.clone(), content).is_some() {
            return Err(BundleError::Shape(format!("{name} is there twice")));
        }
    }
    Ok(members)
}
