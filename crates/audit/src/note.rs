//! Signed notes (C2SP `signed-note`) with Ed25519 keys: a text, an empty line, and lines of signatures.
//!
//! ```text
//! cofferdam-audit/000102030405060708090a0b0c0d0e0f          ┐
//! 3                                                         ├ text, each line ended
//! 4cKPT6vJcvYUQyhzLqpWvzEwX4b5SxL7mP0Wn0r3n3A=              ┘
//!
//! — cofferdam-audit/000102030405060708090a0b0c0d0e0f Az3grlgtzPIC…   (key id ‖ signature, base64)
//! ```

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

/// Signature type of Ed25519 in `signed-note`.
const ED25519: u8 = 1;
/// Length of the longest note that this crate makes or accepts, in bytes.
const LONGEST: usize = 16 * 1024;
/// Most signatures of a note. A note may have signatures of witnesses.
const MOST_SIGNATURES: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an Ed25519 verifier key: expected NAME+8 HEX DIGITS+BASE64")]
pub struct ParseKeyError;

/// A public key with a name, in the *vkey* form of `signed-note`: `NAME+ID+BASE64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    key: VerifyingKey,
}

impl VerifierKey {
    /// Returns the name, which is the origin of the checkpoints.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key id: the first four bytes of SHA-256 over name, newline, type and public key.
    pub fn id(&self) -> u32 {
        let mut sha = Sha256::new();
        sha.update(self.name.as_bytes());
        sha.update([b'\n', ED25519]);
        sha.update(self.key.as_bytes());
        let digest: [u8; 32] = sha.finalize().into();
        u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
    }

    fn verifies(&self, text: &str, signature: &[u8; 64]) -> bool {
        self.key.verify_strict(text.as_bytes(), &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![ED25519];
        bytes.extend_from_slice(self.key.as_bytes());
        write!(f, "{}+{:08x}+{}", self.name, self.id(), STANDARD.encode(bytes))
    }
}

impl FromStr for VerifierKey {
    type Err = ParseKeyError;

    fn from_str(text: &str) -> Result<Self, ParseKeyError> {
        let (name, rest) = text.split_once('+').ok_or(ParseKeyError)?;
        let (id, encoded) = rest.split_once('+').ok_or(ParseKeyError)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| ParseKeyError)?;
        let [ED25519, key @ ..] = &bytes[..] else { return Err(ParseKeyError) };
        let key = <&[u8; 32]>::try_from(key).map_err(|_| ParseKeyError)?;
        let key = VerifyingKey::from_bytes(key).map_err(|_| ParseKeyError)?;
        // Everybody can sign with a key of a small order.
        if key.is_weak() {
            return Err(ParseKeyError);
        }
        let key = Self { name: name.to_owned(), key };
        if !is_name(name) || format!("{:08x}", key.id()) != id {
            return Err(ParseKeyError);
        }
        Ok(key)
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= 256 && !name.contains(|c: char| c == '+' || c.is_whitespace())
}

/// A private key with a name. Its memory is wiped when it is dropped.
pub(crate) struct SecretKey {
    key: SigningKey,
    public: VerifierKey,
}

impl SecretKey {
    /// Creates a key from its seed. `name` must be valid: not empty, without spaces and without a plus sign.
    pub(crate) fn new(name: &str, seed: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(seed);
        let public = VerifierKey { name: name.to_owned(), key: key.verifying_key() };
        Self { key, public }
    }

    pub(crate) fn public(&self) -> &VerifierKey {
        &self.public
    }

    /// Returns the private form of `golang.org/x/mod/sumdb/note`: `PRIVATE+KEY+NAME+ID+BASE64`.
    pub(crate) fn encode(&self) -> String {
        let mut bytes = vec![ED25519];
        bytes.extend_from_slice(self.key.as_bytes());
        format!("PRIVATE+KEY+{}+{:08x}+{}", self.public.name, self.public.id(), STANDARD.encode(bytes))
    }

    pub(crate) fn decode(text: &str) -> Option<Self> {
        let (name, rest) = text.strip_prefix("PRIVATE+KEY+")?.split_once('+')?;
        let (id, encoded) = rest.split_once('+')?;
        let bytes = STANDARD.decode(encoded).ok()?;
        let [ED25519, seed @ ..] = &bytes[..] else { return None };
        let key = Self::new(name, seed.try_into().ok()?);
        (is_name(name) && format!("{:08x}", key.public.id()) == id).then_some(key)
    }

    /// Returns the signed note of `text`, which must end in a newline.
    pub(crate) fn sign(&self, text: &str) -> String {
        let mut signed = self.public.id().to_be_bytes().to_vec();
        signed.extend_from_slice(&self.key.sign(text.as_bytes()).to_bytes());
        format!("{text}\n— {} {}\n", self.public.name, STANDARD.encode(signed))
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretKey").field("public", &self.public).finish_non_exhaustive()
    }
}

/// A parsed note that is not yet verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Note<'a> {
    /// Text that is signed, with its last newline.
    pub(crate) text: &'a str,
    signatures: Vec<(&'a str, u32, Vec<u8>)>,
}

impl<'a> Note<'a> {
    pub(crate) fn parse(note: &'a str) -> Option<Self> {
        if note.len() > LONGEST || note.contains(|c: char| c < ' ' && c != '\n') {
            return None;
        }
        let split = note.rfind("\n\n")?;
        let (text, lines) = (&note[..=split], note[split + 2..].strip_suffix('\n')?);
        let signatures = lines.split('\n').map(signature).collect::<Option<Vec<_>>>()?;
        (signatures.len() <= MOST_SIGNATURES).then_some(Self { text, signatures })
    }

    /// Returns true if `key` signed the note. Signatures of other keys are ignored.
    pub(crate) fn is_signed_by(&self, key: &VerifierKey) -> bool {
        let mine = self.signatures.iter().filter(|(name, id, _)| *name == key.name && *id == key.id());
        let mut mine = mine.peekable();
        mine.peek().is_some()
            && mine.all(|(_, _, bytes)| {
                <&[u8; 64]>::try_from(&bytes[..]).is_ok_and(|signature| key.verifies(self.text, signature))
            })
    }
}

fn signature(line: &str) -> Option<(&str, u32, Vec<u8>)> {
    let (name, encoded) = line.strip_prefix("— ")?.split_once(' ')?;
    let bytes = STANDARD.decode(encoded).ok()?;
    let (id, signature) = bytes.split_at_checked(4)?;
    let id = u32::from_be_bytes(id.try_into().ok()?);
    (is_name(name) && !signature.is_empty()).then(|| (name, id, signature.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "cofferdam-audit/000102030405060708090a0b0c0d0e0f";

    /// The example of `golang.org/x/mod/sumdb/note`: our bytes are those of others.
    #[test]
    fn a_known_key_and_note_verify() {
        let key: VerifierKey =
            "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW".parse().unwrap();
        let note = "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n\n\
                    — PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
        assert_eq!(key.id(), 0xc74f_20a3);
        assert!(Note::parse(note).unwrap().is_signed_by(&key));
        let changed = note.replace("answer", "Answer");
        assert!(!Note::parse(&changed).unwrap().is_signed_by(&key));
    }

    #[test]
    fn keys_and_notes_parse_back() {
        let key = SecretKey::new(NAME, &[7; 32]);
        let again = SecretKey::decode(&key.encode()).unwrap();
        assert_eq!(again.public(), key.public());
        assert_eq!(key.public().to_string().parse(), Ok(key.public().clone()));
        let note = key.sign("a\nb\n");
        let parsed = Note::parse(&note).unwrap();
        assert_eq!(parsed.text, "a\nb\n");
        assert!(parsed.is_signed_by(key.public()));
        assert!(!parsed.is_signed_by(SecretKey::new(NAME, &[8; 32]).public()));
        assert!(!parsed.is_signed_by(SecretKey::new("other", &[7; 32]).public()));
    }

    #[test]
    fn a_key_with_which_everybody_can_sign_is_refused() {
        for first in [0, 1] {
            let mut bytes = [0; 32];
            bytes[0] = first;
            let key = VerifierKey { name: NAME.to_owned(), key: VerifyingKey::from_bytes(&bytes).unwrap() };
            assert_eq!(key.to_string().parse::<VerifierKey>(), Err(ParseKeyError));
        }
    }

    #[test]
    fn every_changed_byte_of_a_note_is_found() {
        let key = SecretKey::new(NAME, &[7; 32]);
        let note = key.sign("a\n42\n");
        for at in 0..note.len() {
            for bit in 0..8 {
                let mut bytes = note.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let Ok(text) = String::from_utf8(bytes) else { continue };
                assert!(!Note::parse(&text).is_some_and(|note| note.is_signed_by(key.public())), "{text}");
            }
        }
    }

    #[test]
    fn invalid_keys_are_refused() {
        let good = SecretKey::new(NAME, &[7; 32]).public().to_string();
        for bad in
            ["", "a", "a+b", "a+00000000+AAAA", &good[1..], &good[..good.len() - 4], &format!("{good} ")]
        {
            assert_eq!(bad.parse::<VerifierKey>(), Err(ParseKeyError), "{bad}");
        }
    }
}
