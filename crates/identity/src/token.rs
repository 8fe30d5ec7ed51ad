//! Run tokens: the credential with which an agent, or a bridge for it, calls the tools of one run only.
//!
//! A token is created with the run or during its life, and shown once. It is valid until the run ends or the next token is created. It
//! names its run, so that finding the run takes no search, and ends in 256 random bits. The run's record holds only its SHA-256, which is
//! compared in constant time.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::ids::RunId;

/// Prefix of every token.
const PREFIX: &str = "cft_";
/// Most bytes of a token.
const MAX_BYTES: usize = 128;
/// Most tokens of deleted runs that are remembered.
const LATELY: usize = 256;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenHash(String);

pub fn issue(run: RunId) -> (String, TokenHash) {
    let secret = operations::encode_base64(&seal::secret());
    let token = format!("{PREFIX}{run}_{}", secret.trim_end_matches('='));
    let hash = TokenHash::of(&token);
    (token, hash)
}

/// Returns the run that a token names.
pub fn run_of(token: &str) -> Option<RunId> {
    let rest = token.strip_prefix(PREFIX).filter(|_| token.len() <= MAX_BYTES)?;
    RunId::parse(rest.split_once('_')?.0).ok()
}

impl TokenHash {
    pub(crate) fn of(token: &str) -> Self {
        Self(hex::encode(Sha256::digest(token.as_bytes())))
    }

    /// Returns true if this is the hash of `token`.
    pub fn is_of(&self, token: &str) -> bool {
        self.0.as_bytes().ct_eq(Self::of(token).0.as_bytes()).into()
    }
}

/// Tokens of runs that were deleted recently.
///
/// Their clients and their endpoint may not know of it yet.
#[derive(Default)]
pub struct DeletedTokens(Mutex<VecDeque<TokenHash>>);

impl DeletedTokens {
    /// Remembers the token hash of a deleted run.
    pub fn keep(&self, hash: Option<TokenHash>) {
        let mut kept = self.0.lock();
        kept.extend(hash);
        while kept.len() > LATELY {
            kept.pop_front();
        }
    }

    /// Returns true if `token` is among them.
    pub fn has(&self, token: &str) -> bool {
        let shown = TokenHash::of(token);
        self.0.lock().iter().any(|hash| hash.0.as_bytes().ct_eq(shown.0.as_bytes()).into())
    }
}

#[cfg(test)]
mod tests {
    use super::{DeletedTokens, LATELY, issue, run_of};
    use crate::ids::RunId;

    #[test]
    fn a_token_names_its_run_and_only_it_has_its_hash() {
        let (run, other) = (RunId::new(), RunId::new());
        let (token, hash) = issue(run);
        assert_eq!(run_of(&token), Some(run));
        assert!(hash.is_of(&token));
        let (again, _) = issue(run);
        assert!(!hash.is_of(&again) && again != token);
        assert!(!hash.is_of(&token.replace(&run.to_string(), &other.to_string())));
        assert!(!hash.is_of(&token[..token.len() - 1]) && !hash.is_of(""));
        let long = format!("{token}{}", "A".repeat(128));
        for bad in ["", "cft_", "cft_x_y", &token[4..], long.as_str()] {
            assert_eq!(run_of(bad), None, "{bad}");
        }
        let secret = token.rsplit('_').next().unwrap();
        assert!(secret.len() >= 43, "256 bits: {secret}");
    }

    #[test]
    fn tokens_of_deleted_runs_are_known_for_a_while() {
        let deleted = DeletedTokens::default();
        let (first, hash) = issue(RunId::new());
        deleted.keep(None);
        deleted.keep(Some(hash));
        assert!(deleted.has(&first) && !deleted.has(&issue(RunId::new()).0));
        for _ in 0..LATELY {
            deleted.keep(Some(issue(RunId::new()).1));
        }
        assert!(!deleted.has(&first));
    }
}
