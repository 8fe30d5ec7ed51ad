//! The keys that may sign, and the checkpoints that are stored beside the log or were given.

use std::collections::{BTreeMap, btree_map};
use std::io;

use super::files::{self, LogFiles};
use crate::checkpoint::{self, Checkpoint, DIRECTORY, handover, origin};
use crate::hash::LogId;
use crate::ledger::KeyEntry;
use crate::note::{Note, VerifierKey};

/// The keys of a log, as they come into force one after the other.
#[derive(Debug)]
pub(super) struct Trust {
    given: Vec<VerifierKey>,
    /// Key in force, if it is trusted.
    in_force: Option<VerifierKey>,
    named: bool,
    /// Keys whose signatures are valid.
    pub(super) used: Vec<String>,
}

impl Trust {
    pub(super) fn new(given: Vec<VerifierKey>) -> Self {
        Self { given, in_force: None, named: false, used: Vec::new() }
    }

    /// Brings the next key into force. Returns false if it is not a key of this log.
    pub(super) fn name(&mut self, log: LogId, entry: &KeyEntry) -> bool {
        let Ok(key) = entry.key.parse::<VerifierKey>() else { return false };
        if key.name() != origin(log) {
            return false;
        }
        let first = self.given.is_empty() && !self.named;
        let vouched = || {
            let (before, note) = (self.in_force.as_ref()?, Note::parse(entry.note.as_deref()?)?);
            Some(note.text == handover(log, &key) && note.is_signed_by(before))
        };
        let trusted = first || self.given.contains(&key) || vouched().unwrap_or(false);
        (self.in_force, self.named) = (trusted.then_some(key), true);
        true
    }

    /// Returns true if the key in force signed this checkpoint.
    pub(super) fn signed(&mut self, checkpoint: &Checkpoint) -> bool {
        let Some(key) = self.in_force.as_ref().filter(|key| checkpoint.is_signed_by(key)) else {
            return false;
        };
        let key = key.to_string();
        if self.used.last() != Some(&key) {
            self.used.push(key);
        }
        true
    }
}

/// A checkpoint that is compared when the walk reaches its size. It is `None` if its file contains no checkpoint.
pub(super) struct Waiting {
    pub(super) name: String,
    pub(super) checkpoint: Option<Checkpoint>,
}

pub(super) struct Shelf(BTreeMap<u64, Vec<Waiting>>);

impl Shelf {
    /// Loads the checkpoints that are stored beside the segments, and adds the given ones.
    pub(super) fn load(files: &dyn LogFiles, given: Vec<(String, Checkpoint)>) -> io::Result<Self> {
        let mut shelf: BTreeMap<u64, Vec<Waiting>> = BTreeMap::new();
        for text in files.names(Some(DIRECTORY))? {
            let Some(size) = checkpoint::size_of(&text) else { continue };
            let name = format!("{DIRECTORY}/{text}");
            // It was removed since the directory was read: only the newest are kept.
            let Some(bytes) = files::load(files, &name)? else { continue };
            let note = std::str::from_utf8(&bytes).ok();
            let checkpoint = note.and_then(Checkpoint::parse).filter(|parsed| parsed.size == size);
            shelf.entry(size).or_default().push(Waiting { name, checkpoint });
        }
        for (name, checkpoint) in given {
            let waiting = Waiting { name, checkpoint: Some(checkpoint) };
            shelf.entry(waiting.checkpoint.as_ref().map_or(0, |c| c.size)).or_default().push(waiting);
        }
        Ok(Self(shelf))
    }

    pub(super) fn take(&mut self, size: u64) -> Vec<Waiting> {
        match self.0.entry(size) {
            btree_map::Entry::Occupied(entry) => entry.remove(),
            btree_map::Entry::Vacant(_) => Vec::new(),
        }
    }

    /// Drops checkpoints of smaller sizes, whose records were removed.
    pub(super) fn drop_below(&mut self, size: u64) {
        self.0 = self.0.split_off(&size);
    }

    pub(super) fn next(&mut self) -> Option<(u64, Waiting)> {
        let mut first = self.0.first_entry()?;
        let size = *first.key();
        let waiting = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        waiting.map(|waiting| (size, waiting))
    }
}
