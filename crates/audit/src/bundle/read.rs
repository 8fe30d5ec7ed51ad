//! Verifies a bundle. It is treated as hostile: it is read once from front to back, and every size is limited before its content is used.

use std::collections::BTreeSet;
use std::io::{self, BufRead as _, BufReader, Read};
use std::num::NonZeroU16;

use sha2::{Digest as _, Sha256};

use super::{
    CHECKPOINT, Entry, KEY, LARGEST, MANIFEST, MOST, MOST_HASHES, MOST_RECORDS, Manifest, POLICY_DOMAIN,
    PROOF, RECORDS, SEAL, is_name, policy_member, policy_of,
};
use crate::canonical::MAX_LINE;
use crate::chain::Damage;
use crate::checkpoint::Checkpoint;
use crate::event::Kind;
use crate::hash::Hash;
use crate::inclusion::root_of;
use crate::note::VerifierKey;
use crate::record::Record;

/// Size of the largest short member, in bytes.
const SHORT: u64 = 1024 * 1024;

/// Reason why a bundle is not accepted. It names the member.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    #[error("not a bundle: the archive cannot be read")]
    Archive(#[source] io::Error),
    /// The archive contains an entry that no bundle has.
    #[error("not a bundle: {0}")]
    Shape(String),
    /// A required member is missing, or at another position.
    #[error("{0} is missing")]
    Missing(String),
    /// A member differs from its description in the manifest.
    #[error("{0} was changed: it does not match the manifest")]
    Changed(String),
    /// A member cannot be read.
    #[error("{0} cannot be read: it was changed, or another program made it")]
    Malformed(&'static str),
    /// The manifest is not the one that is recorded in the log.
    #[error("manifest.json was changed: it differs from the one that the audit log recorded")]
    Manifest,
    #[error("record {line} of {member} {damage}")]
    Record {
        member: &'static str,
        /// Number of its line, from 1.
        line: usize,
        damage: Damage,
    },
    /// The proof does not show that the records are in the log.
    #[error("proof.txt does not prove that the records are in the log of checkpoint.txt")]
    Unproved,
    /// The checkpoint has no valid signature of the key.
    #[error("checkpoint.txt is not signed by {0}")]
    Signature(String),
}

/// Content of a verified bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    pub run_id: String,
    /// Node of a fleet that made the bundle, if its daemon was one.
    pub node: Option<NonZeroU16>,
    /// Identity of the state directory of the daemon that made it. Empty in bundles of older versions.
    pub instance: String,
    pub records: usize,
    /// True if the first record is the creation of the run, so that no earlier record was left out.
    pub from_beginning: bool,
    /// Members that the manifest names.
    pub members: Vec<String>,
    /// Digests of the policies of decisions in the records that are not in the bundle.
    pub missing_policies: Vec<String>,
    /// Checkpoint that proves the records.
    pub checkpoint: Checkpoint,
    /// Verifier key whose signature the checkpoint has.
    pub key: String,
}

/// Verifies a bundle.
///
/// Without a `key`, the bundle is verified with the key that it contains. This proves that the bundle is whole, but not where it comes
/// from. The caller should report that.
pub fn verify(bundle: impl Read, key: Option<&VerifierKey>) -> Result<Verified, BundleError> {
    let mut archive = tar::Archive::new(bundle.take(LARGEST));
    let entries = archive.entries().map_err(BundleError::Archive)?;
    let mut members = Members { entries, seen: BTreeSet::new() };

    let manifest_text = members.short(MANIFEST)?;
    let manifest: Manifest =
        serde_json::from_slice(&manifest_text).map_err(|_| BundleError::Malformed(MANIFEST))?;
    let seal = record(SEAL, 1, &members.text(SEAL)?)?;
    let checkpoint = members.text(CHECKPOINT)?;
    let checkpoint = Checkpoint::parse(&checkpoint).ok_or(BundleError::Malformed(CHECKPOINT))?;
    let carried: VerifierKey =
        members.text(KEY)?.trim_end().parse().map_err(|_| BundleError::Malformed(KEY))?;
    let key = key.unwrap_or(&carried);
    if !checkpoint.is_signed_by(key) {
        return Err(BundleError::Signature(key.to_string()));
    }
    let said = seal.event.details.as_ref().and_then(|details| details["manifest_sha256"].as_str());
    let is_sealed = seal.event.kind == Kind::BundleCreated
        && seal.log == checkpoint.log
        && seal.event.run_id.as_deref() == Some(&manifest.run_id)
        && manifest.log == checkpoint.log.to_string()
        && manifest.v == 1
        && said == Some(&Hash::of(&manifest_text).to_string());
    if !is_sealed {
        return Err(BundleError::Manifest);
    }
    if manifest.members.len() > MOST {
        return Err(BundleError::Shape(format!("it has more than {MOST} members")));
    }
    let proof = members.proof()?;

    let mut records = Records::new(&manifest.run_id, checkpoint.log.to_string());
    while let Some((name, member)) = members.next()? {
        let Some(entry) = manifest.members.get(&name) else {
            return Err(BundleError::Shape(format!("{name} is not in its manifest")));
        };
        read_member(&name, member, entry, &mut records)?;
    }
    if let Some(missing) = manifest.members.keys().find(|name| !members.seen.contains(*name)) {
        return Err(BundleError::Missing(missing.clone()));
    }
    if !manifest.members.contains_key(RECORDS) {
        return Err(BundleError::Missing(RECORDS.to_owned()));
    }

    let Records { mut found, from_beginning, policies, .. } = records;
    let records = found.len();
    found.push((seal.sequence, seal.hash));
    if root_of(checkpoint.size, &found, &proof) != Some(checkpoint.root) {
        return Err(BundleError::Unproved);
    }
    let has = |digest: &String| manifest.members.contains_key(&policy_member(digest));
    let missing_policies = policies.into_iter().filter(|digest| !has(digest)).collect();
    Ok(Verified {
        run_id: manifest.run_id,
        node: manifest.node,
        instance: manifest.instance,
        records,
        from_beginning,
        members: manifest.members.into_keys().collect(),
        missing_policies,
        checkpoint,
        key: key.to_string(),
    })
}

/// Members of the archive, in their order. They are never written to a disk.
struct Members<'a, R: Read> {
    entries: tar::Entries<'a, R>,
    seen: BTreeSet<String>,
}

impl<'a, R: Read> Members<'a, R> {
    /// Returns the next member. It must be a plain file with a plain name that did not occur before.
    fn next(&mut self) -> Result<Option<(String, tar::Entry<'a, R>)>, BundleError> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let entry = entry.map_err(BundleError::Archive)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if !entry.header().entry_type().is_file() || !is_name(&name) {
            return Err(BundleError::Shape(format!("{name:?} is not a plain file with a plain name")));
        }
        if !self.seen.insert(name.clone()) {
            return Err(BundleError::Shape(format!("{name} occurs twice")));
        }
        Ok(Some((name, entry)))
    }

    fn expect(&mut self, name: &'static str) -> Result<tar::Entry<'a, R>, BundleError> {
        match self.next()? {
            Some((found, entry)) if found == name => Ok(entry),
            _ => Err(BundleError::Missing(name.to_owned())),
        }
    }

    fn short(&mut self, name: &'static str) -> Result<Vec<u8>, BundleError> {
        let mut entry = self.expect(name)?;
        if entry.size() > SHORT {
            return Err(BundleError::Malformed(name));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content).map_err(BundleError::Archive)?;
        if content.len() as u64 == entry.size() {
            Ok(content)
        } else {
            Err(BundleError::Shape(format!("{name} is truncated")))
        }
    }

    fn text(&mut self, name: &'static str) -> Result<String, BundleError> {
        String::from_utf8(self.short(name)?).map_err(|_| BundleError::Malformed(name))
    }

    fn proof(&mut self) -> Result<Vec<Hash>, BundleError> {
        let entry = self.expect(PROOF)?;
        let mut proof = Vec::new();
        let mut lines = BufReader::new(entry);
        let mut line = Vec::new();
        loop {
            line.clear();
            lines.by_ref().take(66).read_until(b'\n', &mut line).map_err(BundleError::Archive)?;
            if line.is_empty() {
                return Ok(proof);
            }
            let hash = line.strip_suffix(b"\n").and_then(|hash| std::str::from_utf8(hash).ok());
            let hash = hash.and_then(|hash| hash.parse().ok()).filter(|_| proof.len() < MOST_HASHES);
            proof.push(hash.ok_or(BundleError::Malformed(PROOF))?);
        }
    }
}

pub(super) fn read_member(
    name: &str,
    member: impl Read,
    entry: &Entry,
    records: &mut Records<'_>,
) -> Result<(), BundleError> {
    let mut hashed = Hashed { inner: member, sha256: Sha256::new(), policy: None, bytes: 0 };
    let policy = policy_of(name);
    if policy.is_some() {
        hashed.policy = Some(Sha256::new_with_prefix(POLICY_DOMAIN));
    }
    if name == RECORDS {
        records.read(&mut hashed)?;
    }
    io::copy(&mut hashed, &mut io::sink()).map_err(BundleError::Archive)?;
    let sha256 = Hash::from_bytes(hashed.sha256.finalize().into());
    if hashed.bytes != entry.bytes || sha256.to_string() != entry.sha256 {
        return Err(BundleError::Changed(name.to_owned()));
    }
    let digest = hashed.policy.map(|sha256| Hash::from_bytes(sha256.finalize().into()).to_string());
    if digest.as_deref() != policy {
        return Err(BundleError::Shape(format!("{name} does not match the digest in its name")));
    }
    Ok(())
}

struct Hashed<R> {
    inner: R,
    sha256: Sha256,
    /// Hash of the content with the prefix of a policy's digest.
    policy: Option<Sha256>,
    bytes: u64,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..count]);
        if let Some(policy) = &mut self.policy {
            policy.update(&buffer[..count]);
        }
        self.bytes += count as u64;
        Ok(count)
    }
}

/// Facts from the run's records.
pub(super) struct Records<'a> {
    run_id: &'a str,
    log: String,
    found: Vec<(u64, Hash)>,
    from_beginning: bool,
    policies: BTreeSet<String>,
}

impl<'a> Records<'a> {
    pub(super) fn new(run_id: &'a str, log: String) -> Self {
        Self { run_id, log, found: Vec::new(), from_beginning: false, policies: BTreeSet::new() }
    }

    fn read(&mut self, member: &mut impl Read) -> Result<(), BundleError> {
        let mut lines = BufReader::new(member);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let most = MAX_LINE as u64;
            lines.by_ref().take(most).read_until(b'\n', &mut line).map_err(BundleError::Archive)?;
            if line.is_empty() {
                break;
            }
            let damage = |damage| BundleError::Record { member: RECORDS, line: number, damage };
            let text = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
            let record = record(RECORDS, number, text.ok_or_else(|| damage(Damage::Malformed))?)?;
            self.take(record)?;
        }
        Ok(())
    }

    fn take(&mut self, record: Record) -> Result<(), BundleError> {
        let before = self.found.last().map_or(0, |(sequence, _)| *sequence);
        let is_ours =
            record.event.run_id.as_deref() == Some(self.run_id) && record.log.to_string() == self.log;
        if !is_ours || record.sequence <= before {
            let what = format!("record {} of {RECORDS} is another run's, or out of order", record.sequence);
            return Err(BundleError::Shape(what));
        }
        if self.found.len() == MOST_RECORDS {
            return Err(BundleError::Shape(format!("{RECORDS} has more than {MOST_RECORDS} records")));
        }
        if self.found.is_empty() {
            self.from_beginning = record.event.kind == Kind::RunCreated;
        }
        self.found.push((record.sequence, record.hash));
        let digest = record.event.decision.and_then(|decision| decision.policy_digest);
        if let Some(digest) = digest.filter(|_| self.policies.len() < MOST) {
            self.policies.insert(digest);
        }
        Ok(())
    }
}

fn record(member: &'static str, line: usize, text: &str) -> Result<Record, BundleError> {
    Record::from_line(text).map_err(|damage| BundleError::Record { member, line, damage })
}
