//! Proving a whole log from its files alone, in constant memory.
//!
//! Finds every edit, deletion, reordering, duplication and foreign record, and names the first bad place. It needs
//! help to find two things: whole records cut from the very end, and a log whose rest somebody rewrote with new
//! hashes. A comparison with a signed checkpoint of the log, or with a [`Head`] or checkpoint kept elsewhere, finds
//! both.

mod trust;
mod walk;

use std::io;
use std::path::Path;

use crate::chain::Break;
use crate::checkpoint::Checkpoint;
use crate::hash::LogId;
use crate::note::VerifierKey;
use crate::record::Head;
use walk::{Scope, Walk};

/// How far a verification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    /// Bytes that were there when it began.
    pub total: u64,
}

/// Whether a log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrity {
    /// Every record follows its predecessor.
    Intact,
    /// It does up to here.
    Broken(Break),
}

/// What a chain without a signature cannot tell.
pub const UNVOUCHED: &str = "no signed checkpoint covers any record, so this log cannot be told from one that was emptied or rewritten";

/// What a verification found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The log's identity, from its first good record.
    pub log: Option<LogId>,
    /// How many records are there and good, from the first on.
    pub records: u64,
    /// The last good record.
    pub head: Option<Head>,
    /// The last record that was removed, on record: the log begins after it. 0: nothing was.
    pub removed: u64,
    /// How many signed checkpoints hold.
    pub checkpoints: u64,
    /// The first so many records are covered by a checkpoint that holds.
    pub covered: u64,
    /// The keys that signed them, in verifier form, in the order of their use.
    pub keys: Vec<String>,
    /// How many segments there are.
    pub segments: usize,
    /// How many bytes they have.
    pub bytes: u64,
    /// Whether all of it holds.
    pub integrity: Integrity,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_intact(&self) -> bool {
        self.integrity == Integrity::Intact
    }

    /// That nothing vouches for a log in which nothing is wrong; `None`: a checkpoint does, or something is wrong.
    pub fn unvouched(&self) -> Option<&'static str> {
        (self.is_intact() && self.covered == 0).then_some(UNVOUCHED)
    }
}

/// What a log is compared with, besides itself.
#[derive(Debug, Clone, Default)]
pub struct Against {
    /// Trusted keys. None: the first that the log names is trusted, which proves nothing against a forger who rewrote the log.
    pub keys: Vec<VerifierKey>,
    /// Checkpoints that were kept elsewhere, each with a name for messages.
    pub checkpoints: Vec<(String, Checkpoint)>,
    /// A record that must be there.
    pub head: Option<Head>,
}

/// Proves the log in `dir`. A line without an end counts as [`crate::Damage::TornTail`]: of a log that is being written,
/// use [`verify_up_to`].
pub fn verify(dir: &Path, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    verify_with(dir, Against::default(), progress)
}

/// Proves the log in `dir`, and that `known` is in it: finds truncation and rewriting up to there.
pub fn verify_against(dir: &Path, known: Head, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    verify_with(dir, Against { head: Some(known), ..Against::default() }, progress)
}

/// Proves the log in `dir` against all that is known of it.
pub fn verify_with(dir: &Path, against: Against, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    Walk::new(dir, against, Scope::Whole, progress)?.run()
}

/// Proves the log in `dir` up to `known`, and does not read what a writer may be appending after it. Nothing may be
/// compressed or removed meanwhile.
pub fn verify_up_to(dir: &Path, known: Head, progress: &mut dyn FnMut(Progress)) -> io::Result<Report> {
    let against = Against { head: Some(known), ..Against::default() };
    Walk::new(dir, against, Scope::UpToHead, progress)?.run()
}

#[cfg(test)]
mod tests;
