//! What a run's trash holds, in words that lane, daemon and operator share.
//!
//! An entry is two files in the trash: `NAME` with the content, empty for a directory, and `NAME.json`, which says what
//! it was. The first is complete before the second is there, so that an entry without its `.json` is none.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::EntryType;

/// Ending of the file that says what an entry was.
pub const TRASH_RECORD_SUFFIX: &str = ".json";
/// Most bytes of such a file: a path of 4,096 bytes, each escaped, and the rest.
pub const MAX_TRASH_RECORD: u64 = 32 * 1024;

/// The name of an entry: when it came, which operation brought it, and the how manieth of it. Digits and hyphens only,
/// so that it is a file name and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrashEntry {
    /// Milliseconds since 1970-01-01 UTC.
    pub deleted_unix_ms: u64,
    /// The operation's number in its host worker.
    pub job: u64,
    /// Counts what has the same time and number.
    pub count: u64,
}

impl TrashEntry {
    /// The entry with this name, if it is one's, in exactly the form that it displays as.
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

/// What an entry was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrashRecord {
    /// Where it was, in alias form.
    pub path: String,
    /// A file or a directory.
    #[serde(rename = "type")]
    pub entry_type: EntryType,
    /// Bytes of the content; 0 for a directory.
    pub size_bytes: u64,
    /// SHA-256 of the content, lower-case hex; empty for a directory.
    pub sha256: String,
    /// Its permission bits.
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
