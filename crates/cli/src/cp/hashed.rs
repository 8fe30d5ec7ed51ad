//! Computes the SHA-256 of a stream of bytes.

use sha2::{Digest as _, Sha256};

/// Hash and number of the bytes so far.
#[derive(Clone, Default)]
pub(super) struct Hashed {
    digest: Sha256,
    pub(super) bytes: u64,
}

impl Hashed {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// Returns the hash in lower-case hex.
    pub(super) fn hex(self) -> String {
        hex::encode(self.digest.finalize())
    }
}
