//! Creates a bundle.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::num::NonZeroU16;

use super::member::Member;
use super::{CHECKPOINT, Entry, KEY, MANIFEST, Manifest, PROOF, SEAL, is_name};
use crate::checkpoint::Checkpoint;
use crate::hash::{Hash, LogId};
use crate::note::VerifierKey;

/// Daemon that makes a bundle.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin<'a> {
    /// Number of its node of a fleet, if it is one.
    pub node: Option<NonZeroU16>,
    /// Identity of its state directory.
    pub instance: &'a str,
}

/// Returns the manifest of these members and its SHA-256, which the record of the bundle must contain as `details.manifest_sha256`.
pub fn manifest(
    log: LogId,
    run_id: &str,
    origin: Origin<'_>,
    members: &BTreeMap<String, Member>,
) -> Result<(Vec<u8>, Hash), serde_json::Error> {
    let members = members
        .iter()
        .map(|(name, member)| {
            (name.clone(), Entry { bytes: member.bytes, sha256: member.sha256.to_string() })
        })
        .collect();
    let manifest = Manifest {
        v: 1,
        log: log.to_string(),
        run_id: run_id.to_owned(),
        node: origin.node,
        instance: origin.instance.to_owned(),
        members,
    };
    let text = serde_json::to_vec_pretty(&manifest)?;
    let hash = Hash::of(&text);
    Ok((text, hash))
}

/// Evidence of a bundle from the log.
#[derive(Debug)]
pub struct Sealed<'a> {
    /// Line of the bundle's record.
    pub seal: &'a str,
    pub checkpoint: &'a Checkpoint,
    /// Key that signed the checkpoint.
    pub key: &'a VerifierKey,
    /// Proof that the run's records and the bundle's record are among those that the checkpoint covers.
    pub proof: &'a [Hash],
}

/// Writes the archive. The same content always gives the same bytes.
pub fn write(
    out: impl Write,
    manifest: &[u8],
    members: &BTreeMap<String, Member>,
    sealed: &Sealed<'_>,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(out);
    let key = format!("{}\n", sealed.key);
    append(&mut archive, MANIFEST, manifest.len() as u64, manifest)?;
    append(&mut archive, SEAL, sealed.seal.len() as u64, sealed.seal.as_bytes())?;
    append(&mut archive, CHECKPOINT, sealed.checkpoint.note.len() as u64, sealed.checkpoint.note.as_bytes())?;
    append(&mut archive, KEY, key.len() as u64, key.as_bytes())?;
    append(&mut archive, PROOF, sealed.proof.len() as u64 * LINE, Lines::of(sealed.proof))?;
    for (name, member) in members {
        append(&mut archive, name, member.bytes, member.reader())?;
    }
    archive.into_inner()?.flush()
}

fn append(
    archive: &mut tar::Builder<impl Write>,
    name: &str,
    bytes: u64,
    content: impl Read,
) -> io::Result<()> {
    if !is_name(name) {
        return Err(io::Error::other(format!("{name} is no name of a bundle's member")));
    }
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes);
    header.set_mode(0o644);
    archive.append_data(&mut header, name, content)
}

/// Length of a line of `proof.txt`: 64 digits and a newline, in bytes.
const LINE: u64 = 65;

/// Reader of the lines of `proof.txt`.
struct Lines<'a> {
    hashes: std::slice::Iter<'a, Hash>,
    line: String,
    at: usize,
}

impl<'a> Lines<'a> {
    fn of(hashes: &'a [Hash]) -> Self {
        Self { hashes: hashes.iter(), line: String::new(), at: 0 }
    }
}

impl Read for Lines<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.line.len() {
            let Some(hash) = self.hashes.next() else { return Ok(0) };
            (self.line, self.at) = (format!("{hash}\n"), 0);
        }
        let rest = &self.line.as_bytes()[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        Ok(count)
    }
}
