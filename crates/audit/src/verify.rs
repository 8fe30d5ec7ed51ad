//! Verifies a whole log from its files alone, in constant memory.
//!
//! It finds every edit, deletion, reordering, duplication and foreign record, and names the first bad position. It needs help to find two
//! kinds of damage: whole records that were cut off at the end, and a log whose rest was rewritten with new hashes. A comparison with a
//! signed checkpoint of the log, or with a [`Head`] or checkpoint that was kept elsewhere, finds both.

mod files;
mod trust;
mod walk;

use std::io;
use std::path::Path;

use crate::chain::Break;
use crate::checkpoint::Checkpoint;
use crate::hash::LogId;
use crate::note::VerifierKey;
use crate::record::Head;
use files::Directory;
pub use files::LogFiles;
use walk::{Scope, Walk};

/// Progress of a verification, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    /// Number of bytes that existed when it began.
    pub total: u64,
}

/// Result of the verification of a log's chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// Every record follows its predecessor.
    Intact,
    /// The records are valid only before this position.
    Broken(Break),
}

/// Warning about a chain without a signature.
pub const UNVOUCHED: &str =
    "no signed checkpoint covers any record, so an emptied or rewritten log would look the same";

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Identity of the log, from its first good record.
    pub log: Option<LogId>,
    /// Number of good records, from the first on.
    pub records: u64,
    /// Last good record.
    pub head: Option<Head>,
    /// Sequence number of the last record whose removal is on record, or 0 if none was removed. The log begins after it.
    pub removed: u64,
    /// Number of valid signed checkpoints.
    pub checkpoints: u64,
    /// Number of records, from the first on, that a valid checkpoint covers.
    pub covered: u64,
    /// Verifier keys that signed them, in the order of their use.
    pub keys: Vec<String>,
    /// Number of segments.
    pub segments: usize,
    /// Size of the segments in bytes.
    pub bytes: u64,
    pub integrity: Integrity,
}

impl Report {
    /// Returns true if no damage was found.
    pub fn is_intact(&self) -> bool {
        self.integrity == Integrity::Intact
    }

    /// Returns a warning if the log has no damage but no checkpoint covers any of its records.
    pub fn unvouched(&self) -> Option<&'static str> {
        (self.is_intact() && self.covered == 0).then_some(UNVOUCHED)
    }
}

/// Independent evidence with which a log is compared.
#[derive(Debug, Clone, Default)]
pub struct Against {
    /// Trusted keys.
    ///
    /// If there are none, the first key that the log names is trusted. This proves nothing against a forger who rewrote the log.
    pub keys: Vec<VerifierKey>,
    /// Checkpoints that were kept elsewhere, each with a name for messages.
    pub checkpoints: Vec<(String, Checkpoint)>,
    /// Record that must be in the log.
    pub head: Option<Head>,
}

/// Verifies the log in `dir`.
///
/// A line without a newline counts as [`crate::Damage::TornTail`]. For a log that is being written, use [`verify_up_to`].
pub fn verify(dir: &Path, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    verify_with(dir, Against::default(), progress)
}

/// Verifies the log in `dir`, and that it contains `known`. This finds truncation and rewriting up to that record.
pub fn verify_against(dir: &Path, known: Head, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    verify_with(dir, Against { head: Some(known), ..Against::default() }, progress)
}

/// Verifies the log in `dir` with all evidence in `against`.
pub fn verify_with(dir: &Path, against: Against, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    verify_files(&Directory(dir), against, progress)
}

/// Verifies the log that has these files, with all evidence in `against`.
pub fn verify_files(
    files: &dyn LogFiles,
    against: Against,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<Report> {
    Walk::new(files, against, Scope::Whole, progress)?.run()
}

/// Verifies the log in `dir` up to `known`, and does not read records that a writer may be appending after it.
///
/// No segment may be compressed or removed meanwhile.
pub fn verify_up_to(dir: &Path, known: Head, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    let against = Against { head: Some(known), ..Against::default() };
    Walk::new(&Directory(dir), against, Scope::UpToHead, progress)?.run()
}

#[cfg(test)]
mod tests;
