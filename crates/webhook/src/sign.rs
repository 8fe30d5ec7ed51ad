//! Signatures: HMAC-SHA-256 over `id.timestamp.body` (Standard Webhooks, "Signature scheme").

#![expect(clippy::disallowed_methods, reason = "a secret's file that the configuration names")]

use std::fmt;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Prefix of secrets, by which scanners recognise them.
const PREFIX: &str = "whsec_";
/// Length of a secret in bytes, by the specification.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Largest file that may contain a secret, in bytes.
const MAX_FILE: u64 = 1024;

/// A webhook's secret. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Reads `whsec_` and base64 from a file that only its owner and group can read.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
        let metadata = std::fs::metadata(path).map_err(failed)?;
        if !metadata.is_file() {
            return Err(format!("{} is not a regular file", path.display()));
        }
        if metadata.mode() & 0o007 != 0 {
            return Err(format!("{} is accessible to all users: run chmod o= on it", path.display()));
        }
        let mut text = String::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MAX_FILE).read_to_string(&mut text).map_err(failed)?;
        Self::parse(text.trim()).ok_or_else(|| {
            format!(
                "{} must hold {PREFIX} and {} to {} bytes in base64; `echo {PREFIX}$(head -c 32 /dev/urandom | base64)` makes one",
                path.display(),
                BYTES.start(),
                BYTES.end()
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        BYTES.contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Returns the value of the header `webhook-signature`.
    pub(crate) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        // HMAC accepts keys of any length, so this cannot fail.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::Secret;

    /// The example of the specification's reference libraries.
    #[test]
    fn signatures_follow_the_specification() {
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    #[test]
    fn a_secret_is_read_from_a_closed_file_and_refused_otherwise() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Secret::read(&path)
        };
        assert!(write("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", 0o640).is_ok());
        assert!(write("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n", 0o644).unwrap_err().contains("chmod"));
        for bad in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_***"] {
            let refused = write(bad, 0o600).unwrap_err();
            assert!(refused.contains("must hold whsec_"), "{refused}");
            assert!(bad.len() < 8 || !refused.contains(bad), "no secret in a message: {refused}");
        }
        assert!(Secret::read(directory.path()).unwrap_err().contains("not a regular file"));
        assert!(Secret::read(&directory.path().join("none")).unwrap_err().contains("cannot be read"));
    }
}
