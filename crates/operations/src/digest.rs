//! SHA-256 in the form that results use: lower-case hex.

use std::io;

use sha2::{Digest as _, Sha256};

/// SHA-256 hasher.
#[derive(Default)]
pub struct Digest(Sha256);

impl Digest {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn hex(self) -> String {
        hex::encode(self.0.finalize())
    }
}

impl io::Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the hash of bytes that are all in memory.
pub fn sha256(bytes: &[u8]) -> String {
    let mut digest = Digest::default();
    digest.update(bytes);
    digest.hex()
}
