//! The two values of fixed size in the chain: the SHA-256 of a record and the random identity of a log.
//!
//! Both are written in lower-case hex, and no other form is read. So every value has exactly one spelling.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::str::FromStr;

use sha2::{Digest, Sha256};

/// Error: the text is not lower-case hex of the right length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} lower-case hex digits")]
pub struct ParseHexError {
    expected: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts(&[bytes])
    }

    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut sha = Sha256::new();
        for part in parts {
            sha.update(part);
        }
        Self(sha.finalize().into())
    }

    pub(crate) fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Identity of one log: 128 random bits in every record, so that records of two logs cannot be mixed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId([u8; 16]);

impl LogId {
    pub(crate) fn random() -> io::Result<Self> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// Returns the value of `previous` in the first record of this log.
    pub(crate) fn genesis(self) -> Hash {
        Hash::of_parts(&[b"cofferdam audit log v1\n", hex::encode(self.0).as_bytes(), b"\n"])
    }
}

macro_rules! lower_hex {
    ($type:ident, $bytes:expr) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = [0; $bytes * 2];
                // Cannot fail, because the buffer has exactly the length that the encoding needs.
                hex::encode_to_slice(self.0, &mut text).map_err(|_| fmt::Error)?;
                f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $type {
            type Err = ParseHexError;

            fn from_str(text: &str) -> Result<Self, ParseHexError> {
                let mut bytes = [0; $bytes];
                let error = ParseHexError { expected: $bytes * 2 };
                if text.bytes().any(|b| b.is_ascii_uppercase()) {
                    return Err(error);
                }
                hex::decode_to_slice(text, &mut bytes).map_err(|_| error)?;
                Ok(Self(bytes))
            }
        }
    };
}

lower_hex!(Hash, 32);
lower_hex!(LogId, 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_has_one_spelling() {
        let hash = Hash::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.parse(), Ok(hash));
        assert!(text.to_uppercase().parse::<Hash>().is_err());
        assert!(text[1..].parse::<Hash>().is_err());
        assert!("zz".repeat(32).parse::<Hash>().is_err());
    }

    #[test]
    fn identities_differ() {
        let (a, b) = (LogId::random().unwrap(), LogId::random().unwrap());
        assert_ne!(a, b);
        assert_ne!(a.genesis(), b.genesis());
        assert_eq!(a.to_string().parse(), Ok(a));
    }
}
