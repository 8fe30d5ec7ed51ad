//! Limits the bytes that are read, and computes their digest.

use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

/// The input is longer than the limit.
#[derive(Debug, thiserror::Error)]
#[error("longer than {0} bytes")]
pub(super) struct TooLong(pub(super) u64);

/// Reader that fails after a limit of bytes.
pub struct Meter<R> {
    input: R,
    most: u64,
    read: u64,
    hash: Sha256,
}

impl<R: Read> Meter<R> {
    pub fn new(input: R, most: u64) -> Self {
        Self { input, most, read: 0, hash: Sha256::new() }
    }

    /// Returns the number of bytes read.
    pub fn read_bytes(&self) -> u64 {
        self.read
    }

    /// Returns the SHA-256 of the bytes read, in lower-case hex.
    pub fn sha256(self) -> String {
        hex::encode(self.hash.finalize())
    }
}

impl<R: Read> Read for Meter<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.read += count as u64;
        if self.read > self.most {
            return Err(io::Error::other(TooLong(self.most)));
        }
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}
