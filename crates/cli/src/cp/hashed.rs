//! SHA-256 of what goes by.

use sha2::{Digest as _, Sha256};

/// The hash of what went by, and how much that was.
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

    /// In lower-case hex.
    pub(super) fn hex(self) -> String {
        self.digest.finalize().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    }
}
