//! Signatures: HMAC-SHA-256 over `id.timestamp.body` (Standard Webhooks, "Signature scheme").

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Prefix of secrets, by which scanners recognise them.
const PREFIX: &str = "whsec_";
/// Length of a secret in bytes, by the specification.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A webhook's secret. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Parses `whsec_` and base64. An error says what the file of the secret must hold, and nothing of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = text.strip_prefix(PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
        bytes.filter(|bytes| BYTES.contains(&bytes.len())).map(Self).ok_or_else(|| {
            format!(
                "must hold {PREFIX} and {} to {} bytes in base64; `echo {PREFIX}$(head -c 32 /dev/urandom | base64)` makes one",
                BYTES.start(),
                BYTES.end()
            )
        })
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
    fn a_secret_of_another_form_is_refused_without_a_word_of_it() {
        for bad in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c2hvcnQ=", "whsec_***"] {
            let refused = Secret::parse(bad).unwrap_err();
            assert!(refused.contains("must hold whsec_"), "{refused}");
            assert!(bad.len() < 8 || !refused.contains(bad), "no secret in a message: {refused}");
        }
    }
}
