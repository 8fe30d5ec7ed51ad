#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{Read as _, Write as _};
use std::path::Path;

use chacha20poly1305::aead::{Aead as _, Generate as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

mod stream;

pub use stream::{BLOCK, PIECE, Read, StreamKey, Tail, plain_length, sealed_length};

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// Form of everything that this crate writes. It is the first byte of each sealed value and of each piece.
pub const VERSION: u8 = 2;

/// Returns 32 random bytes from the kernel.
pub fn secret() -> [u8; KEY_BYTES] {
    Key::generate().into()
}

/// Reason why a sealed value cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("it was sealed by another version, under another key or for another value, or it is damaged")]
pub struct Broken;

/// Reason why nothing could be sealed: the cipher takes no message of this length.
#[derive(Debug, thiserror::Error)]
#[error("a message of {0} bytes cannot be encrypted")]
pub struct TooLong(usize);

/// Seals values, each for one context. The daemon has one.
pub struct Seal {
    values: Cipher,
    fingerprints: Hmac<Sha256>,
    /// The key of which all others are derived (HKDF-SHA256, RFC 5869).
    root: Hkdf<Sha256>,
}

impl Seal {
    /// Reads the key in the file at `path`, or makes the file with a new key.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let key = match std::fs::File::open(path) {
            Ok(file) => read(&file)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(path)?,
            Err(error) => return Err(error),
        };
        let root = Hkdf::new(None, &key);
        let values = Cipher::new(&derive(&root, "values", "")?);
        let fingerprints = Hmac::new_from_slice(&derive(&root, "fingerprints", "")?);
        Ok(Self { values, fingerprints: fingerprints.map_err(std::io::Error::other)?, root })
    }

    /// Derives the key of the streams of one purpose.
    pub fn stream_key(&self, purpose: &str) -> std::io::Result<StreamKey> {
        Ok(StreamKey::from_bytes(derive(&self.root, "streams", purpose)?))
    }

    /// Returns the HMAC-SHA256 of `content` for one purpose. A short content cannot be found by trying values without the
    /// key.
    pub fn fingerprint(&self, purpose: &str, content: &[u8]) -> [u8; 32] {
        let mut mac = self.fingerprints.clone();
        // The length separates the two.
        mac.update(&(purpose.len() as u64).to_be_bytes());
        mac.update(purpose.as_bytes());
        mac.update(content);
        mac.finalize().into_bytes().into()
    }

    /// Encrypts `plain`. It opens only under the same `context`, which names the kind of the value and its owner, such as `call ID`.
    pub fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, TooLong> {
        self.values.seal(context, plain)
    }

    /// Decrypts a value that was sealed for this `context`.
    pub fn unseal(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, Broken> {
        self.values.unseal(context, sealed)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

/// Seals values that clients keep for this process, under a key that ends with it.
pub struct ProcessSeal(Cipher);

impl ProcessSeal {
    /// Makes a seal with a new key.
    pub fn generate() -> Self {
        Self(Cipher::new(&secret()))
    }

    /// Encrypts `plain` like [`Seal::seal`].
    pub fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, TooLong> {
        self.0.seal(context, plain)
    }

    /// Decrypts a value that this process has sealed for this `context`.
    pub fn unseal(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, Broken> {
        self.0.unseal(context, sealed)
    }
}

impl fmt::Debug for ProcessSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessSeal")
    }
}

/// XChaCha20-Poly1305 with a random nonce in front of each ciphertext.
struct Cipher(XChaCha20Poly1305);

impl Cipher {
    fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(XChaCha20Poly1305::new(&Key::from(*key)))
    }

    fn seal(&self, context: &str, plain: &[u8]) -> Result<Vec<u8>, TooLong> {
        let mut sealed = vec![VERSION];
        self.encrypt(&associated(0, true, context), plain, &mut sealed)?;
        Ok(sealed)
    }

    fn unseal(&self, context: &str, sealed: &[u8]) -> Result<Vec<u8>, Broken> {
        let sealed = sealed.strip_prefix(&[VERSION]).ok_or(Broken)?;
        self.decrypt(&associated(0, true, context), sealed)
    }

    /// Appends nonce, ciphertext and tag to `to`.
    fn encrypt(&self, associated: &[u8], plain: &[u8], to: &mut Vec<u8>) -> Result<(), TooLong> {
        let nonce = XNonce::generate();
        let payload = Payload { msg: plain, aad: associated };
        let sealed = self.0.encrypt(&nonce, payload).map_err(|_| TooLong(plain.len()))?;
        to.extend_from_slice(&nonce);
        to.extend_from_slice(&sealed);
        Ok(())
    }

    fn decrypt(&self, associated: &[u8], sealed: &[u8]) -> Result<Vec<u8>, Broken> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or(Broken)?;
        let payload = Payload { msg: sealed, aad: associated };
        self.0.decrypt(&XNonce::from(*nonce), payload).map_err(|_| Broken)
    }
}

/// Returns the associated data of piece `number` of `context`. All but the last field have a fixed length.
fn associated(number: u64, is_last: bool, context: &str) -> Vec<u8> {
    [&[VERSION, u8::from(is_last)][..], &number.to_be_bytes(), context.as_bytes()].concat()
}

/// Derives a key. `kind` is one of three words of this file without a colon, so that no two purposes have the same info.
fn derive(root: &Hkdf<Sha256>, kind: &str, purpose: &str) -> std::io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    let info = [b"cofferdam v2 ", kind.as_bytes(), b":", purpose.as_bytes()];
    root.expand_multi_info(&info, &mut key).map_err(std::io::Error::other)?;
    Ok(key)
}

fn read(file: &std::fs::File) -> std::io::Result<Key> {
    let mut bytes = Vec::with_capacity(KEY_BYTES + 1);
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let key: [u8; KEY_BYTES] = bytes
        .try_into()
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "a key has 32 bytes"))?;
    Ok(key.into())
}

/// Makes the file with a new key, which is on the disk before it is used.
fn make(path: &Path) -> std::io::Result<Key> {
    let key = Key::generate();
    atomic_file::replace(path, |file| file.write_all(&key))?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::Seal;

    #[test]
    fn sealed_values_open_only_in_their_context_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seal.key");
        let seal = Seal::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let closed = seal.seal("call 1", b"hunter2").unwrap();
        assert!(!closed.windows(7).any(|part| part == b"hunter2"));
        assert_ne!(closed, seal.seal("call 1", b"hunter2").unwrap(), "no nonce is used twice");

        let seal = Seal::open(&path).unwrap();
        assert_eq!(seal.unseal("call 1", &closed).unwrap(), b"hunter2");
        assert!(seal.unseal("call 2", &closed).is_err());
        for at in 0..closed.len() {
            let mut bent = closed.clone();
            bent[at] ^= 1;
            assert!(seal.unseal("call 1", &bent).is_err(), "byte {at}");
            assert!(seal.unseal("call 1", &closed[..at]).is_err(), "cut at {at}");
        }
        let other = Seal::open(&directory.path().join("other.key")).unwrap();
        assert!(other.unseal("call 1", &closed).is_err());
        assert!(seal.unseal("call 1", &closed[1..]).is_err(), "the form of an earlier version");
    }

    #[test]
    fn keys_of_different_purposes_differ() {
        let directory = tempfile::tempdir().unwrap();
        let seal = Seal::open(&directory.path().join("seal.key")).unwrap();
        let keys = [("values", ""), ("streams", ""), ("streams", "spool"), ("fingerprints", "spool")]
            .map(|(kind, purpose)| super::derive(&seal.root, kind, purpose).unwrap());
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[at + 1..].contains(key));
        }
    }

    #[test]
    fn a_fingerprint_is_of_its_content_purpose_and_key() {
        let directory = tempfile::tempdir().unwrap();
        let open = |name: &str| Seal::open(&directory.path().join(name)).unwrap();
        let of = |seal: &Seal, purpose: &str, content: &[u8]| seal.fingerprint(purpose, content);
        let one = of(&open("a.key"), "request", b"x");
        assert_eq!(one, of(&open("a.key"), "request", b"x"), "also after a restart");
        assert_ne!(one, of(&open("a.key"), "request", b"y"));
        assert_ne!(one, of(&open("a.key"), "other", b"x"));
        assert_ne!(one, of(&open("b.key"), "request", b"x"));
    }

    #[test]
    fn a_damaged_key_is_an_error_and_never_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seal.key");
        for damaged in [&b""[..], b"short", &[7; 33]] {
            std::fs::write(&path, damaged).unwrap();
            assert!(Seal::open(&path).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), damaged);
        }
    }
}
