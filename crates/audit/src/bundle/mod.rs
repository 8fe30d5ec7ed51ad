//! The run bundle: what there is to know of one run, in a file that anyone can verify without the daemon.
//!
//! ```text
//!  members (run.json, policy.json, records.jsonl, …)
//!     └─ SHA-256 ─► manifest.json ─ SHA-256 ─► seal.json: a record of the log ─ proof ─┐
//!  each line of records.jsonl ─────────────────────── proof (proofs.json) ────────────┼─► root ─► checkpoint.txt (signed)
//! ```
//!
//! A tar archive of plain files. The manifest has size and SHA-256 of every other member but those that come with the
//! seal. Its own SHA-256 stands in a record of the log (`bundle_created`), and that record and each of the run's are proved
//! to be in the log by the checkpoint, which the audit key has signed. So nothing signs but the log's own key, and the
//! making of a bundle is on record. Says nothing about records that are left out: who wants that proved verifies the log.

mod read;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use read::{BundleError, Verified, verify};
pub use write::{Sealed, manifest, write};

/// Largest bundle, bytes.
pub const LARGEST: u64 = 512 * 1024 * 1024;
/// Most members.
const MOST: usize = 64;

/// The member that holds the run's records, a line each.
pub const RECORDS: &str = "records.jsonl";
const MANIFEST: &str = "manifest.json";
const SEAL: &str = "seal.json";
const PROOFS: &str = "proofs.json";
const CHECKPOINT: &str = "checkpoint.txt";
const KEY: &str = "key.txt";

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Version of this form: 1.
    v: u32,
    log: String,
    run_id: String,
    members: BTreeMap<String, Member>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Member {
    bytes: u64,
    sha256: String,
}

/// `proofs.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proofs {
    /// Records that the checkpoint speaks of.
    size: u64,
    /// By sequence number: the hashes from the leaf upwards, lower-case hex.
    proofs: BTreeMap<u64, Vec<String>>,
}

/// What a member may be called: one plain name.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= 64 && name.bytes().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests;
