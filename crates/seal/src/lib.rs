#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

use std::fmt;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use chacha20::XChaCha20;
use chacha20::cipher::{KeyIvInit as _, StreamCipher as _, StreamCipherSeek as _};
use chacha20poly1305::aead::{Aead as _, Generate as _, KeyInit as _, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use sha2::{Digest as _, Sha256};

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

/// 32 random bytes, from the kernel.
pub fn secret() -> [u8; KEY_BYTES] {
    Key::generate().into()
}

/// Why something could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("it was sealed under another key, for another place, or it is damaged")]
pub struct Broken;

/// Seals and opens. One for the daemon.
pub struct Seal {
    cipher: XChaCha20Poly1305,
    key: Key,
}

/// Closes streams that are written in pieces and read from any offset: a keystream (XChaCha20) for each place. It hides,
/// and proves nothing; a place must be a stream's own, and none of its bytes written twice with another value.
pub struct StreamKey([u8; KEY_BYTES]);

/// A place is at the end of its keystream, which has 256 GiB.
#[derive(Debug)]
pub struct Exhausted;

impl StreamKey {
    /// Closes, or opens, the bytes that stand at `offset` of the stream that `place` names.
    pub fn apply(&self, place: &str, offset: u64, data: &mut [u8]) -> Result<(), Exhausted> {
        if data.is_empty() {
            return Ok(());
        }
        let digest: [u8; 32] = Sha256::digest(place.as_bytes()).into();
        let nonce: [u8; NONCE_BYTES] = digest.first_chunk().copied().ok_or(Exhausted)?;
        let mut cipher = XChaCha20::new(&self.0.into(), &nonce.into());
        cipher.try_seek(offset).map_err(|_| Exhausted)?;
        cipher.try_apply_keystream(data).map_err(|_| Exhausted)
    }

    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for StreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StreamKey")
    }
}

impl Seal {
    /// Takes the key from the file at `path`, which is made with a new one when there is none.
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let key = match std::fs::File::open(path) {
            Ok(file) => read(&file)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => make(path)?,
            Err(error) => return Err(error),
        };
        Ok(Self { cipher: XChaCha20Poly1305::new(&key), key })
    }

    /// A key of its own for streams of one purpose.
    pub fn stream_key(&self, purpose: &str) -> StreamKey {
        let mut hash = Sha256::new();
        hash.update(b"cofferdam streams v1\n");
        hash.update(purpose.as_bytes());
        hash.update(b"\n");
        // Of a fixed length, and last: no two purposes have the same text before it.
        hash.update(self.key);
        StreamKey(hash.finalize().into())
    }

    /// A digest of `content` for one purpose. Nobody without the key can compute it, so nobody can find a short content by
    /// trying.
    pub fn fingerprint(&self, purpose: &str, content: &[u8]) -> [u8; 32] {
        let StreamKey(key) = self.stream_key(&format!("fingerprint {purpose}"));
        // Both of a fixed length.
        Sha256::new().chain_update(key).chain_update(Sha256::digest(content)).finalize().into()
    }

    /// Closes `plain`. It opens only under the same `place`, which says what it is and whose, such as `call ID`.
    pub fn seal(&self, place: &str, plain: &[u8]) -> Vec<u8> {
        let nonce = XNonce::generate();
        let payload = Payload { msg: plain, aad: place.as_bytes() };
        // Fails for messages of more than 256 GiB alone.
        let closed = self.cipher.encrypt(&nonce, payload).unwrap_or_default();
        [nonce.as_slice(), &closed].concat()
    }

    /// Opens what was closed for this `place`.
    pub fn unseal(&self, place: &str, closed: &[u8]) -> Result<Vec<u8>, Broken> {
        let (nonce, closed) = closed.split_first_chunk::<NONCE_BYTES>().ok_or(Broken)?;
        let payload = Payload { msg: closed, aad: place.as_bytes() };
        self.cipher.decrypt(&XNonce::from(*nonce), payload).map_err(|_| Broken)
    }
}

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

fn read(file: &std::fs::File) -> std::io::Result<Key> {
    let mut bytes = Vec::with_capacity(KEY_BYTES + 1);
    file.take(KEY_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    let key: [u8; KEY_BYTES] = bytes
        .try_into()
        .map_err(|_| std::io::Error::new(std::io::ErrorKind::InvalidData, "a key has 32 bytes"))?;
    Ok(key.into())
}

/// Whole or absent, and there for good before it is used.
fn make(path: &Path) -> std::io::Result<Key> {
    let key = Key::generate();
    let aside = path.with_extension("new");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
    file.write_all(&key)?;
    file.sync_all()?;
    std::fs::rename(&aside, path)?;
    if let Some(directory) = path.parent() {
        std::fs::File::open(directory)?.sync_all()?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::Seal;

    #[test]
    fn what_was_sealed_opens_in_its_place_alone_also_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seal.key");
        let seal = Seal::open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let closed = seal.seal("call 1", b"hunter2");
        assert!(!closed.windows(7).any(|part| part == b"hunter2"));
        assert_ne!(closed, seal.seal("call 1", b"hunter2"), "no nonce is used twice");

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
