//! The run bundle: the records and circumstances of one run, in a file that anyone can verify without the daemon.
//!
//! ```text
//!  members (run.json, policy-….json, records.jsonl, …)
//!     └─ SHA-256 ─► manifest.json ─ SHA-256 ─► seal.json: a record of the log ─┐
//!  each line of records.jsonl ─────────────────────────────────────────────────┴─ proof.txt ─► root ─► checkpoint.txt (signed)
//! ```
//!
//! A bundle is a tar archive of plain files. The manifest has the size and SHA-256 of every member except those that come with the seal. A
//! record of the log (`bundle_created`) contains the manifest's SHA-256. The checkpoint, which the audit key has signed, proves that this
//! record and each record of the run are in the log. So no other key signs, and the creation of a bundle is on record.
//!
//! A bundle does not show whether records of the run were left out. The verification of the log shows that.
//! `docs/src/audit-format.md` specifies the format for other programs.

mod member;
mod read;
mod write;

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

pub use member::{Member, MemberWriter};
pub use read::{BundleError, Verified, verify};
pub use write::{Origin, Sealed, manifest, write};

/// Size of the largest bundle that is read or written, in bytes.
pub const LARGEST: u64 = 512 * 1024 * 1024;
/// Number of records of one run that a bundle can hold.
pub const MOST_RECORDS: usize = 500_000;
/// Largest number of hashes in a proof. The records of one run need fewer, unless they are far apart in a log of billions.
pub const MOST_HASHES: usize = 2_000_000;
const MOST: usize = 64;

/// Member that contains the run's records, one in each line.
pub const RECORDS: &str = "records.jsonl";
const MANIFEST: &str = "manifest.json";
const SEAL: &str = "seal.json";
const PROOF: &str = "proof.txt";
const CHECKPOINT: &str = "checkpoint.txt";
const KEY: &str = "key.txt";

/// Prefix of a policy's canonical form when its digest is computed.
const POLICY_DOMAIN: &[u8] = b"cofferdam policy 1\0";

/// Returns the name of the member that contains the policy of this digest in its canonical form.
///
/// Decisions in records refer to their policy by this digest.
pub fn policy_member(digest: &str) -> String {
    format!("policy-{digest}.json")
}

/// Returns the digest in the name of a policy's member.
fn policy_of(name: &str) -> Option<&str> {
    name.strip_prefix("policy-")?.strip_suffix(".json")
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    /// Version of this format: 1.
    v: u32,
    log: String,
    run_id: String,
    /// Node of a fleet that made the bundle, if its daemon was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    node: Option<NonZeroU16>,
    /// Identity of the state directory of the daemon that made it. Bundles of older versions lack it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    instance: String,
    members: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bytes: u64,
    sha256: String,
}

/// Returns true if a member may have this name, which must be a plain file name.
fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'-' | b'_');
    !name.is_empty() && name.len() <= 96 && name.bytes().all(plain) && !name.starts_with('.')
}

#[cfg(test)]
mod tests;
