//! The names and records in a run's trash, which lane, daemon and operator share.
//!
//! An entry is two files in the trash: `NAME` with the content, empty for a directory, and `NAME.json`, which describes it. The first is
//! complete before the second exists, so a file without its `.json` is not an entry.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::EntryType;

/// Ending of the file that describes an entry.
pub const TRASH_RECORD_SUFFIX: &str = ".json";
/// Most bytes of such a file: a path of 4,096 bytes, each escaped, and the rest.
pub const MAX_TRASH_RECORD: u64 = 32 * 1024;

/// Name of an entry: its time, the number of its operation, and a counter.
///
/// It consists of digits and hyphens only, so it is always a plain file name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrashEntry {
    /// Milliseconds since 1970-01-01 UTC.
    pub deleted_unix_ms: u64,
    /// The operation's number in its host worker.
    pub job: u64,
    /// Distinguishes entries with the same time and number.
    pub count: u64,
}

impl TrashEntry {
    /// Parses an entry's name in exactly the form in which it is displayed, or returns `None`.
    pub fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.split('-').map(str::parse);
        let mut next = || numbers.next()?.ok();
        let entry = Self { deleted_unix_ms: next()?, job: next()?, count: next()? };
        (entry.to_string() == name).then_some(entry)
    }
}

impl fmt::Display for TrashEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.deleted_unix_ms, self.job, self.count)
    }
}

/// Description of a removed file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashRecord {
    /// Original path, in alias form.
    pub path: String,
    /// File or directory.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Bytes of the content; 0 for a directory.
    pub size_bytes: u64,
    /// SHA-256 of the content, lower-case hex; empty for a directory.
    pub sha256: String,
    /// Permission bits.
    pub mode: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        let entry = TrashEntry { deleted_unix_ms: 1_795_320_000_123, job: 7, count: 0 };
        assert_eq!(entry.to_string(), "1795320000123-7-0");
        assert_eq!(TrashEntry::parse("1795320000123-7-0"), Some(entry));
        for other in [
            "",
            "1-2",
            "1-2-3-4",
            "01-2-3",
            "+1-2-3",
            "1-2-3.json",
            "1-2-/",
            "../1-2-3",
            "1-2-3\n",
            "-1-2-3",
            "1-2-99999999999999999999",
        ] {
            assert_eq!(TrashEntry::parse(other), None, "{other:?}");
        }
    }
}
