//! State of a walk over a log: the chain, the tree over its records, its keys, and its last checkpoint.
//!
//! Writer, recovery, retention and verifier all add records to it, so that they agree on what is signed.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::canonical::{self, Envelope};
use crate::chain::{Chain, Damage};
use crate::event::{Event, Kind};
use crate::hash::{Hash, LogId};
use crate::note::VerifierKey;
use crate::record::Head;
use crate::tree::Tree;

/// Number of key changes that are remembered; a record can hold as many.
const MOST_KEYS: usize = 64;

/// A signing key, as the log introduces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyEntry {
    pub(crate) key: String,
    /// Note by which the previous key hands over. If it is absent, no key vouches for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// State of a log after some record, which is all that is needed to continue without the records before.
///
/// In serialised form it is the file `frontier`, and most of the record of a removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frontier {
    pub(crate) log: String,
    /// Sequence number of the last record.
    pub(crate) last_sequence: u64,
    /// Hash of the last record.
    pub(crate) last_hash: String,
    pub(crate) peaks: Vec<String>,
    /// The newest keys so far, at most [`MOST_KEYS`]. The key in force is the last one.
    #[serde(default)]
    pub(crate) keys: Vec<KeyEntry>,
    /// Sequence number of the record with the last checkpoint, or 0 if there is none.
    #[serde(default)]
    pub(crate) anchored: u64,
}

/// File of a frontier. It contains the frontier's JSON, a newline, and the SHA-256 of that JSON.
pub(crate) const FRONTIER: &str = "frontier";

impl Frontier {
    pub(crate) fn encode(&self) -> Vec<u8> {
        // Cannot fail, because the struct contains only texts and numbers. If it did, the empty file would not be a frontier.
        let mut bytes = serde_json::to_vec(self).unwrap_or_default();
        let hash = Hash::of(&bytes);
        bytes.extend_from_slice(format!("\n{hash}\n").as_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?;
        let (json, hash) = text.rsplit_once('\n')?;
        (hash.parse() == Ok(Hash::of(json.as_bytes()))).then(|| serde_json::from_str(json).ok()).flatten()
    }
}

/// A record that changes the ledger.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Mark {
    /// Note of a checkpoint that covers all records before this one.
    Checkpoint(String),
    Key(KeyEntry),
}

/// State of a walk over a log. See the module's documentation.
#[derive(Debug, Clone)]
pub(crate) struct Ledger {
    pub(crate) chain: Chain,
    tree: Tree,
    keys: Vec<KeyEntry>,
    anchored: u64,
}

impl Ledger {
    /// Creates the ledger of a log from its first record on.
    pub(crate) fn genesis() -> Self {
        Self { chain: Chain::genesis(), tree: Tree::default(), keys: Vec::new(), anchored: 0 }
    }

    /// Creates the ledger after a frontier, or returns `None` if the frontier is malformed.
    pub(crate) fn behind(frontier: &Frontier) -> Option<Self> {
        let head = Head { sequence: frontier.last_sequence, hash: frontier.last_hash.parse().ok()? };
        let log = frontier.log.parse().ok()?;
        let peaks = frontier.peaks.iter().map(|peak| peak.parse().ok()).collect::<Option<Vec<Hash>>>()?;
        let tree = Tree::of(head.sequence, peaks)?;
        (head.sequence > 0).then(|| Self {
            chain: Chain::behind(log, head),
            tree,
            keys: frontier.keys.clone(),
            anchored: frontier.anchored,
        })
    }

    /// Returns the frontier at this position, or `None` if there is no record yet.
    pub(crate) fn frontier(&self) -> Option<Frontier> {
        let (head, log) = (self.chain.head()?, self.chain.log()?);
        Some(Frontier {
            log: log.to_string(),
            last_sequence: head.sequence,
            last_hash: head.hash.to_string(),
            peaks: self.tree.peaks().iter().map(Hash::to_string).collect(),
            keys: self.keys.clone(),
            anchored: self.anchored,
        })
    }

    /// Accepts a line as the next record, or returns the damage and does not advance.
    pub(crate) fn accept(&mut self, line: &[u8]) -> Result<(Envelope, Option<Mark>), Damage> {
        let mut chain = self.chain;
        let envelope = chain.accept(line)?;
        let mark = match canonical::kind_of(line) {
            Some("checkpoint" | "audit_key") => {
                let event: Event = serde_json::from_slice(line).map_err(|_| Damage::Malformed)?;
                Some(mark(&event).ok_or(Damage::Malformed)?)
            }
            _ => None,
        };
        self.chain = chain;
        self.note(envelope.sequence, envelope.hash, mark.as_ref());
        Ok((envelope, mark))
    }

    /// Adds a record that this process has just made durable.
    pub(crate) fn wrote(&mut self, log: LogId, head: Head, event: &Event) {
        self.chain = Chain::behind(log, head);
        self.note(head.sequence, head.hash, mark(event).as_ref());
    }

    fn note(&mut self, sequence: u64, hash: Hash, mark: Option<&Mark>) {
        self.tree.push(hash);
        match mark {
            Some(Mark::Checkpoint(_)) => self.anchored = sequence,
            Some(Mark::Key(entry)) => {
                self.keys.push(entry.clone());
                if self.keys.len() > MOST_KEYS {
                    self.keys.remove(0);
                }
            }
            None => {}
        }
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the newest keys so far, at most [`MOST_KEYS`]. The key in force is the last one.
    pub(crate) fn keys(&self) -> &[KeyEntry] {
        &self.keys
    }

    pub(crate) fn key(&self) -> Option<VerifierKey> {
        self.keys.last()?.key.parse().ok()
    }

    /// Returns the sequence number of the record with the last checkpoint, or 0 if there is none.
    pub(crate) fn anchored(&self) -> u64 {
        self.anchored
    }
}

fn mark(event: &Event) -> Option<Mark> {
    let details = event.details.as_ref()?;
    match event.kind {
        Kind::Checkpoint => {
            details.get("note").and_then(Value::as_str).map(|note| Mark::Checkpoint(note.to_owned()))
        }
        Kind::AuditKey => KeyEntry::deserialize(details).ok().map(Mark::Key),
        _ => None,
    }
}
