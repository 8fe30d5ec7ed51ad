//! Making a bundle.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{CHECKPOINT, KEY, MANIFEST, Manifest, Member, PROOFS, Proofs, SEAL, is_name};
use crate::checkpoint::Checkpoint;
use crate::hash::{Hash, LogId};
use crate::inclusion::Prover;
use crate::note::VerifierKey;

/// The manifest of these members, and what the record of the bundle has to say of it: its SHA-256 as
/// `details.manifest_sha256`.
pub fn manifest(
    log: LogId,
    run_id: &str,
    members: &BTreeMap<String, Vec<u8>>,
) -> Result<(Vec<u8>, Hash), serde_json::Error> {
    let members = members
        .iter()
        .map(|(name, content)| {
            let member = Member { bytes: content.len() as u64, sha256: Hash::of(content).to_string() };
            (name.clone(), member)
        })
        .collect();
    let manifest = Manifest { v: 1, log: log.to_string(), run_id: run_id.to_owned(), members };
    let text = serde_json::to_vec_pretty(&manifest)?;
    let hash = Hash::of(&text);
    Ok((text, hash))
}

/// What the log says of a bundle.
#[derive(Debug)]
pub struct Sealed<'a> {
    /// The line of the record of the bundle.
    pub seal: &'a str,
    /// A checkpoint that covers it.
    pub checkpoint: &'a Checkpoint,
    /// Who signed that.
    pub key: &'a VerifierKey,
    /// Fed with the hashes of the first records up to the checkpoint's size.
    pub prover: &'a Prover,
    /// Sequence numbers of the run's records and of the bundle's.
    pub sequences: &'a [u64],
}

/// Writes the archive: the same bytes for the same content.
pub fn write(
    out: impl Write,
    manifest: &[u8],
    members: &BTreeMap<String, Vec<u8>>,
    sealed: &Sealed<'_>,
) -> io::Result<()> {
    let missing = || io::Error::other("a record that is to be proved was not read");
    let mut proofs = Proofs { size: sealed.checkpoint.size, proofs: BTreeMap::new() };
    for sequence in sealed.sequences {
        let proof = sealed.prover.proof(*sequence).ok_or_else(missing)?;
        proofs.proofs.insert(*sequence, proof.iter().map(Hash::to_string).collect());
    }
    let proofs = serde_json::to_vec(&proofs)?;
    let key = format!("{}\n", sealed.key);
    let mut archive = tar::Builder::new(out);
    let own: [(&str, &[u8]); 5] = [
        (MANIFEST, manifest),
        (SEAL, sealed.seal.as_bytes()),
        (PROOFS, &proofs),
        (CHECKPOINT, sealed.checkpoint.note.as_bytes()),
        (KEY, key.as_bytes()),
    ];
    let members = members.iter().map(|(name, content)| (name.as_str(), content.as_slice()));
    for (name, content) in own.into_iter().chain(members) {
        if !is_name(name) {
            return Err(io::Error::other(format!("{name} is no name of a bundle's member")));
        }
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, content)?;
    }
    archive.into_inner()?.flush()
}
