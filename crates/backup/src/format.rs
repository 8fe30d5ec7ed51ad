//! The members of an archive, and what describes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Version of the form of archives.
pub const VERSION: u32 = 1;

pub(crate) const HEAD: &str = "backup.json";
/// Path of the store in a state directory.
pub const STORE: &str = "store.db";
/// Path of the use of models in a state directory.
pub const USAGE: &str = "usage/usage.db";
/// Path of the drain of the node in a state directory.
pub(crate) const DRAIN: &str = "node.json";
pub(crate) const SEAL_KEY: &str = "seal.key";
pub(crate) const AUDIT_KEY: &str = "keys/audit.key";
pub(crate) const LOG: &str = "audit";
pub(crate) const MANIFEST: &str = "manifest.json";

/// Members that every archive has, beside its log.
pub(crate) const REQUIRED: [&str; 3] = [STORE, SEAL_KEY, AUDIT_KEY];
/// Number of members.
pub(crate) const MOST: usize = 100_000;
/// Length of the first member, bytes.
pub(crate) const LONGEST_HEAD: u64 = 64 * 1024;
/// Length of the last member, bytes.
pub(crate) const LONGEST_MANIFEST: u64 = 32 * 1024 * 1024;
/// Length of a key, bytes.
pub(crate) const LONGEST_KEY: u64 = 4096;
/// Length of the drain, bytes. A daemon reads as many.
pub(crate) const LONGEST_DRAIN: u64 = 64 * 1024;

/// Description of a backup: its first member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// [`VERSION`].
    pub version: u32,
    /// UUIDv7.
    pub backup_id: String,
    /// Time at which it was begun, milliseconds since the epoch.
    pub made_at_ms: u64,
    /// Release of the daemon.
    pub release: String,
    /// Number of records that the checkpoint covers.
    pub log_size: u64,
    /// Signed note of a checkpoint of the log, which the log in the archive must have.
    pub checkpoint: String,
    /// Key that has signed it.
    pub verifier_key: String,
}

/// Length and digest of a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// The last member.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    pub(crate) members: BTreeMap<String, Entry>,
}

/// Returns true if a member between the first and the last one can have this name.
pub(crate) fn is_member(name: &str) -> bool {
    if [STORE, USAGE, DRAIN, SEAL_KEY, AUDIT_KEY].contains(&name) {
        return true;
    }
    name.strip_prefix(LOG).and_then(|name| name.strip_prefix('/')).is_some_and(audit::is_file_to_copy)
}

/// Returns the bytes that a member may have.
pub(crate) fn longest(name: &str) -> u64 {
    match name {
        HEAD => LONGEST_HEAD,
        MANIFEST => LONGEST_MANIFEST,
        SEAL_KEY | AUDIT_KEY => LONGEST_KEY,
        DRAIN => LONGEST_DRAIN,
        // The disk is their bound.
        _ => 1 << 42,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_the_state_directory() {
        for name in
            [STORE, USAGE, DRAIN, SEAL_KEY, AUDIT_KEY, "audit/removed", "audit/00000000000000000001.jsonl"]
        {
            assert!(is_member(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "/etc/passwd",
            "../store.db",
            "audit",
            "audit/",
            "audit/../store.db",
            "audit//removed",
            "audit/index.db",
            "lock",
            "instance",
            "bin/coffer-guest",
            "restored.json",
            "store.db/x",
            "node.json.next",
            "keys/audit.key.next",
        ] {
            assert!(!is_member(name), "{name}");
        }
    }
}
