//! Checkpoints: signed statements about the state of the log at some size (C2SP `tlog-checkpoint`).
//!
//! Anyone who kept one can prove later that no record up to that size was cut off or rewritten. The proof needs only the files and the
//! public key. The tree is that of RFC 6962 over the records' hashes, so that witnesses and other tools for transparency logs can use it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hash::{Hash, LogId};
use crate::note::{Note, SecretKey, VerifierKey};
use crate::tree::Tree;

/// Returns the origin line of a log's checkpoints, which is also the name of its keys.
pub(crate) fn origin(log: LogId) -> String {
    format!("cofferdam-audit/{log}")
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub log: LogId,
    /// Number of records that it covers, from the first on.
    pub size: u64,
    /// Root of the Merkle tree over these records.
    pub root: Hash,
    /// The signed note, unchanged.
    pub note: String,
}

impl Checkpoint {
    pub(crate) fn sign(log: LogId, tree: &Tree, key: &SecretKey) -> Self {
        let (size, root) = (tree.size(), tree.root());
        let text = format!("{}\n{size}\n{}\n", origin(log), STANDARD.encode(root.as_bytes()));
        Self { log, size, root, note: key.sign(&text) }
    }

    /// Parses a note without a check of its signatures. Returns `None` if it is not a checkpoint of an audit log.
    pub fn parse(note: &str) -> Option<Self> {
        let mut lines = Note::parse(note)?.text.split('\n');
        let log = lines.next()?.strip_prefix("cofferdam-audit/")?.parse().ok()?;
        let digits = lines.next()?;
        let size: u64 = digits.parse().ok()?;
        let root: [u8; 32] = STANDARD.decode(lines.next()?).ok()?.try_into().ok()?;
        // Extension lines are for other programs, but must not be empty.
        let extensions: Vec<_> = lines.collect();
        let (last, extensions) = extensions.split_last()?;
        let whole = last.is_empty() && extensions.iter().all(|line| !line.is_empty());
        (whole && size.to_string() == digits).then(|| Self {
            log,
            size,
            root: Hash::from_bytes(root),
            note: note.to_owned(),
        })
    }

    /// Parses a file of several notes that are separated by empty lines. Returns `None` if one of them is not a checkpoint.
    pub fn parse_all(text: &str) -> Option<Vec<Self>> {
        let parts: Vec<_> = text.strip_suffix('\n')?.split("\n\n").collect();
        parts.chunks(2).map(|pair| Self::parse(&format!("{}\n", pair.join("\n\n")))).collect()
    }

    pub fn is_signed_by(&self, key: &VerifierKey) -> bool {
        key.name() == origin(self.log) && Note::parse(&self.note).is_some_and(|note| note.is_signed_by(key))
    }

    /// Returns the name of the file for a checkpoint in the log's directory.
    pub(crate) fn file_name(size: u64) -> String {
        format!("{DIRECTORY}/{size:020}{SUFFIX}")
    }
}

/// Directory of a log's checkpoints.
pub(crate) const DIRECTORY: &str = "checkpoints";
const SUFFIX: &str = ".txt";

pub(crate) fn size_of(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(SUFFIX)?;
    let valid = digits.len() == 20 && digits.bytes().all(|b| b.is_ascii_digit());
    valid.then(|| digits.parse().ok()).flatten()
}

/// Returns the text that the key in force signs to hand over to the next key.
pub(crate) fn handover(log: LogId, next: &VerifierKey) -> String {
    format!("{}\nnext key\n{next}\n", origin(log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::log_id;

    fn checkpoint() -> (Checkpoint, SecretKey) {
        let key = SecretKey::new(&origin(log_id()), &[3; 32]);
        let mut tree = Tree::default();
        tree.push(Hash::of(b"a record"));
        (Checkpoint::sign(log_id(), &tree, &key), key)
    }

    #[test]
    fn signed_checkpoints_parse_back() {
        let (checkpoint, key) = checkpoint();
        let parsed = Checkpoint::parse(&checkpoint.note).unwrap();
        assert_eq!(parsed, checkpoint);
        assert!(parsed.is_signed_by(key.public()));
        let other = SecretKey::new(&origin(log_id()), &[4; 32]);
        assert!(!parsed.is_signed_by(other.public()));
        let many = format!("{0}\n{0}\n{0}", checkpoint.note);
        assert_eq!(Checkpoint::parse_all(&many), Some(vec![checkpoint; 3]));
        assert_eq!(Checkpoint::parse_all(&many[..many.len() - 9]), None);
        assert_eq!(size_of("00000000000000000042.txt"), Some(42));
        assert_eq!(Checkpoint::file_name(42), "checkpoints/00000000000000000042.txt");
    }

    #[test]
    fn handovers_and_malformed_notes_are_not_checkpoints() {
        let (checkpoint, key) = checkpoint();
        let next = SecretKey::new(&origin(log_id()), &[4; 32]);
        assert_eq!(Checkpoint::parse(&key.sign(&handover(log_id(), next.public()))), None);
        for (from, to) in
            [("\n1\n", "\n01\n"), ("\n1\n", "\n+1\n"), ("cofferdam-audit/0", "x/0"), ("\n\n", "\n")]
        {
            assert_eq!(Checkpoint::parse(&checkpoint.note.replacen(from, to, 1)), None, "{from:?}");
        }
    }
}
