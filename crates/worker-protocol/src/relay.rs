//! Connects a guest and its relay, for kernels where processes beside the guest could open the engine's streams.
//!
//! ```text
//!  daemon ─ engine's exec, a user of its own ─► relay ◄─ socket, guest's secret ─ guest ◄─ engine's exec ─ daemon
//! ```
//!
//! The daemon gives both the same key as the first bytes of their standard input. The relay listens under the key's name and accepts one
//! client that sends the key's secret. Then it passes bytes on, and the guest has only a socket open.

/// Bytes of the abstract name under which the relay listens.
pub const NAME: usize = 16;
/// Bytes of the secret.
pub const SECRET: usize = 32;
/// Byte that the relay writes when it listens.
pub const LISTENS: u8 = b'L';

/// The first bytes that relay and guest read.
#[derive(Clone)]
pub struct Key([u8; NAME + SECRET]);

impl Key {
    pub const LENGTH: usize = NAME + SECRET;

    /// Makes a key from random bytes.
    pub fn new(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// Returns the key as it is written.
    pub fn bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// Returns the name in letters and digits, because gVisor takes a name that ends in a slash for a directory.
    pub fn name(&self) -> String {
        self.0[..NAME].iter().fold(String::from("cofferdam-"), |name, byte| format!("{name}{byte:02x}"))
    }

    pub fn secret(&self) -> &[u8] {
        &self.0[NAME..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_random_name_is_plain() {
        let mut bytes = [b'/'; Key::LENGTH];
        bytes[0] = 0;
        let key = Key::new(bytes);
        assert_eq!(key.name(), format!("cofferdam-00{}", "2f".repeat(NAME - 1)));
        assert_eq!(key.secret(), [b'/'; SECRET]);
    }
}
