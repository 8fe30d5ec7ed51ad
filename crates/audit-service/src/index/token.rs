//! Encodes page tokens: opaque to clients, and valid only for the query that returned them.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

/// The query for which a page token is valid: filter and order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound([u8; 8]);

impl Bound {
    /// Binds to a query, given in a complete encoded form.
    pub fn to(query: &[u8]) -> Self {
        let hash: [u8; 32] = Sha256::digest(query).into();
        Self(hash.first_chunk().copied().unwrap_or_default())
    }

    /// Returns the token for a page that begins at a record.
    pub fn token(self, next: u64) -> String {
        BASE64_URL_SAFE_NO_PAD.encode([&[1][..], &self.0, &next.to_be_bytes()].concat())
    }

    /// Returns the record at which a page begins; `None` if the token is not one of this query.
    pub fn parse(self, token: &str) -> Option<u64> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(token).ok()?;
        let rest = bytes.strip_prefix(&[1])?.strip_prefix(&self.0)?;
        rest.try_into().ok().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::Bound;

    #[test]
    fn a_token_is_good_for_its_query() {
        let (one, other) = (Bound::to(b"one"), Bound::to(b"other"));
        for next in [0, 1, 1 << 40, u64::MAX] {
            let token = one.token(next);
            assert_eq!(one.parse(&token), Some(next));
            assert_eq!(other.parse(&token), None);
            for bad in ["", "x", "====", &token[1..], &format!("{token}A")] {
                assert_eq!(one.parse(bad), None, "{bad}");
            }
        }
    }
}
