//! The statement that a passkey signs.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Separates these digests from all others, and names their form.
const DOMAIN: &str = "cofferdam consent 1";

/// Begin of a coverage of commands that begin with the same words.
pub(crate) const PREFIX: &str = "prefix:";

/// Returns the SHA-256 of a text, lower-case hex.
pub fn digest(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// Returns the coverage of a consent to commands that begin with these words, as a statement has it.
pub fn prefix(words: &[String]) -> String {
    // Each word with its length, as words may hold any separator.
    let words: Vec<_> = words.iter().map(|word| format!("{}:{word}", word.len())).collect();
    format!("{PREFIX}{}", digest(&words.concat()))
}

/// A decision on one approval, and all that it was about. Texts are there as their digests, so that hiding a secret in
/// a record leaves the proof whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub approval_id: String,
    /// Digest of the call and all state that the approval is bound to, as in the record of its request.
    pub digest: String,
    /// Digest of the texts that the reviewer was shown.
    pub shown: String,
    /// Principal who decides.
    pub principal: String,
    /// `approve` or `deny`.
    pub decision: String,
    /// SHA-256 of the comment.
    pub comment: String,
    /// Coverage of the consent: `once`, `digest`, or `prefix:` and the SHA-256 of the words.
    pub remember: String,
    /// Random value of the daemon, used once, lower-case hex.
    pub nonce: String,
}

impl Statement {
    /// Returns the challenge that a passkey signs: SHA-256 over each field with its length before it.
    pub fn challenge(&self) -> [u8; 32] {
        let Self { approval_id, digest, shown, principal, decision, comment, remember, nonce } = self;
        let mut hash = Sha256::new();
        for field in [DOMAIN, approval_id, digest, shown, principal, decision, comment, remember, nonce] {
            hash.update((field.len() as u64).to_be_bytes());
            hash.update(field);
        }
        hash.finalize().into()
    }
}
