//! The run bundle: what there is to know of one run, in a file that anyone can verify without the daemon.
//!
//! ```text
//!  members (run.json, policy-….json, records.jsonl, …)
//!     └─ SHA-256 ─► manifest.json ─ SHA-256 ─► seal.json: a record of the log ─┐
//!  each line of records.jsonl ─────────────────────────────────────────────────┴─ proof.txt ─► root ─► checkpoint.txt (signed)
//! ```
//!
//! A tar archive of plain files. The manifest has size and SHA-256 of every other member but those that come with the
//! seal. Its own SHA-256 is in a record of the log (`bundle_created`), and that record and each of the run's are proved
//! to be in the log by the checkpoint, which the audit key has signed. So nothing signs but the log's own key, and the
//! making of a bundle is on record. Says nothing about records that are left out: who wants that proved verifies the log.
//! `FORMAT.md` states it for others.

mod member;
mod read;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use member::{Member, MemberWriter};
pub use read::{BundleError, Verified, verify};
pub use write::{Sealed, manifest, write};

/// Bytes of the largest bundle that is read or written.
pub const LARGEST: u64 = 512 * 1024 * 1024;
/// Records of one run that a bundle can hold.
pub const MOST_RECORDS: usize = 500_000;
/// Most hashes of a proof: what the records of one run need, unless they lie apart in a log of billions.
pub const MOST_HASHES: usize = 2_000_000;
const MOST: usize = 64;

/// The member that holds the run's records, a line each.
pub const RECORDS: &str = "records.jsonl";
const MANIFEST: &str = "manifest.json";
const SEAL: &str = "seal.json";
const PROOF: &str = "proof.txt";
const CHECKPOINT: &str = "checkpoint.txt";
const KEY: &str = "key.txt";

/// The prefix of a policy's canonical form when its digest is taken.
const POLICY_DOMAIN: &[u8] = b"cofferdam policy 1\0";

/// The name of the member that holds the policy of this digest, in its canonical form: what a decision in a record rests
/// on.
pub fn policy_member(digest: &str) -> String {
    format!("policy-{digest}.json")
}

/// The digest in such a name.
fn policy_of(name: &str) -> Option<&str> {
    name.strip_prefix("policy-")?.strip_suffix(".json")
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Version of this form: 1.
    v: u32,
    log: String,
    run_id: String,
    members: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bytes: u64,
    sha256: String,
}

/// What a member may be called: one plain name.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= 96 && name.bytes().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests;
