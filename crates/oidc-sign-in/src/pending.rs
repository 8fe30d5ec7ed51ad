//! A sign-in that is under way, as the cookie of its browser has it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use seal::ProcessSeal;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Time within which the issuer has to send the browser back, seconds.
pub const LIFE: u64 = 600;
/// Context of the seal of a cookie.
const CONTEXT: &str = "sign-in";
/// Longest cookie, bytes. A path has at most 512.
const LONGEST: usize = 2_048;

/// A sign-in that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pending {
    /// Name of the issuer.
    pub(crate) issuer: String,
    pub(crate) state: String,
    pub(crate) nonce: String,
    /// Secret without which the code is worth nothing (RFC 7636, 4.1).
    pub(crate) verifier: String,
    /// Path of the console to show afterwards. The caller checks it.
    pub(crate) to: String,
    /// End, seconds since 1970.
    pub(crate) until: u64,
}

impl Pending {
    pub(crate) fn new(issuer: &str, to: &str, now: u64) -> Self {
        let secret = || URL_SAFE_NO_PAD.encode(seal::secret());
        Self {
            issuer: issuer.to_owned(),
            state: secret(),
            nonce: secret(),
            verifier: secret(),
            to: to.to_owned(),
            until: now.saturating_add(LIFE),
        }
    }

    /// Returns the value of the cookie.
    pub(crate) fn cookie(&self, seal: &ProcessSeal) -> Option<String> {
        let text = serde_json::to_vec(self).ok()?;
        let cookie = URL_SAFE_NO_PAD.encode(seal.seal(CONTEXT, &text).ok()?);
        (cookie.len() <= LONGEST).then_some(cookie)
    }

    /// Reads the cookie of a sign-in with this state that this process has begun and that is not over.
    pub(crate) fn read(seal: &ProcessSeal, cookie: &str, state: &str, now: u64) -> Option<Self> {
        if cookie.len() > LONGEST {
            return None;
        }
        let text = seal.unseal(CONTEXT, &URL_SAFE_NO_PAD.decode(cookie).ok()?).ok()?;
        let pending: Self = serde_json::from_slice(&text).ok()?;
        let is_own: bool = pending.state.as_bytes().ct_eq(state.as_bytes()).into();
        // A browser that keeps a cookie longer than it should does not make the sign-in longer.
        let is_now = now < pending.until && pending.until <= now.saturating_add(LIFE);
        (is_own && !state.is_empty() && is_now).then_some(pending)
    }

    /// Returns the hash of the verifier, which is sent first (RFC 7636, 4.2, `S256`).
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_counts_for_its_state_and_its_time() {
        let seal = ProcessSeal::generate();
        let pending = Pending::new("corp", "/approvals", 1_000);
        let cookie = pending.cookie(&seal).unwrap();
        let read = |cookie: &str, state: &str, now| Pending::read(&seal, cookie, state, now);
        assert_eq!(read(&cookie, &pending.state, 1_599), Some(pending.clone()));
        assert_eq!(read(&cookie, &pending.state, 1_600), None, "it is over");
        assert_eq!(read(&cookie, &pending.state, 999), None, "it lasts longer than it may");
        let other = Pending::new("corp", "/approvals", 1_000);
        for state in ["", &other.state, &pending.state[1..]] {
            assert_eq!(read(&cookie, state, 1_001), None, "{state}");
        }
        assert_eq!(read(&other.cookie(&seal).unwrap(), &pending.state, 1_001), None);
        for bad in ["", "x", "e30", &cookie[1..], &"A".repeat(9_000)] {
            assert_eq!(read(bad, &pending.state, 1_001), None, "{bad}");
        }
        let empty = Pending { state: String::new(), ..pending };
        assert_eq!(read(&empty.cookie(&seal).unwrap(), "", 1_001), None);
    }

    #[test]
    fn a_cookie_that_another_process_or_nobody_has_sealed_does_not_count() {
        let seal = ProcessSeal::generate();
        let pending = Pending::new("corp", "/approvals", 1_000);
        let plain = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&pending).unwrap());
        for cookie in [plain, pending.cookie(&ProcessSeal::generate()).unwrap()] {
            assert_eq!(Pending::read(&seal, &cookie, &pending.state, 1_001), None);
        }
    }

    #[test]
    fn secrets_are_new_each_time_and_long_enough() {
        let (one, two) = (Pending::new("corp", "/", 0), Pending::new("corp", "/", 0));
        for (one, two) in [(&one.state, &two.state), (&one.nonce, &two.nonce), (&one.verifier, &two.verifier)]
        {
            assert!(one != two && one.len() == 43, "{one}");
        }
        assert!(one.state != one.nonce && one.nonce != one.verifier);
    }

    #[test]
    fn the_challenge_is_that_of_the_specification() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        let pending = Pending { verifier, ..Pending::new("corp", "/", 0) };
        assert_eq!(pending.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_path_that_is_too_long_makes_no_cookie() {
        let seal = ProcessSeal::generate();
        assert!(Pending::new("corp", &"a".repeat(512), 0).cookie(&seal).is_some());
        assert!(Pending::new("corp", &"a".repeat(4_096), 0).cookie(&seal).is_none());
    }
}
