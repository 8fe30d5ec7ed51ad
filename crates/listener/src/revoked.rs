//! Reads the list of revoked client certificates.
//!
//! It has the SHA-256 of each, as `openssl x509 -noout -fingerprint -sha256` prints it. The holder of a certificate can make another one
//! of it without its authority (`signature-twins`), so the list counts for that one, too.

use std::collections::HashSet;
use std::iter;

use sha2::{Digest as _, Sha256};
use signature_twins::twins;

/// The SHA-256 of a certificate's DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// Parses 64 hexadecimal digits, with or without colons, after the part up to a `=`.
    fn parse(written: &str) -> Option<Self> {
        let digits = written.rsplit('=').next()?.trim().replace(':', "");
        let mut bytes = [0; 32];
        if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(bytes))
    }
}

/// The fingerprints by which a certificate that a client has shown may be in the list: its own first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shown(Vec<Fingerprint>);

impl Shown {
    pub(super) fn of(der: &[u8]) -> Self {
        let twins = twins(der).map(|twin| Fingerprint::of(&twin));
        Self(iter::once(Fingerprint::of(der)).chain(twins).collect())
    }

    /// Returns true if the list has one of them.
    pub(super) fn is_in(&self, list: &HashSet<Fingerprint>) -> bool {
        self.0.iter().any(|fingerprint| list.contains(fingerprint))
    }
}

/// Parses the fingerprints of a file: one a line, and `#` begins a comment.
pub(super) fn parse(text: &[u8]) -> Result<HashSet<Fingerprint>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "is no text".to_owned())?;
    let lines = text
        .lines()
        .zip(1..)
        .map(|(line, number)| (line.split('#').next().unwrap_or_default().trim(), number));
    let fingerprint = |(line, number)| {
        Fingerprint::parse(line).ok_or_else(|| {
            format!("line {number} is no SHA-256 fingerprint: `openssl x509 -noout -fingerprint -sha256 -in cert.pem` prints one")
        })
    };
    lines.filter(|(line, _)| !line.is_empty()).map(fingerprint).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::{Fingerprint, Shown, parse, twins};

    #[test]
    fn the_list_counts_for_a_certificate_with_the_other_signature() {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::default().self_signed(&key).unwrap();
        let twin = twins(certificate.der()).next().unwrap();
        let list = [Fingerprint::of(certificate.der())].into();
        assert_ne!(Fingerprint::of(&twin), Fingerprint::of(certificate.der()));
        assert!(Shown::of(certificate.der()).is_in(&list) && Shown::of(&twin).is_in(&list));
        assert!(!Shown::of(b"another").is_in(&list));
    }

    #[test]
    fn a_list_is_as_openssl_prints_it_and_one_wrong_line_is_an_error() {
        let one = Fingerprint::of(b"one");
        let colons: Vec<String> = one.0.iter().map(|byte| format!("{byte:02X}")).collect();
        let hex = colons.concat().to_lowercase();
        let list = format!("# lost\n\nsha256 Fingerprint={}\n{hex} # the same\n", colons.join(":"));
        assert_eq!(parse(list.as_bytes()).unwrap(), [one].into());
        assert!(parse(b"").unwrap().is_empty());
        for bad in
            [&hex[1..], &format!("{hex}0"), &hex.replace(&hex[..1], "x"), "ci", "+1".repeat(32).as_str()]
        {
            let wrong = parse(format!("# remark\n{bad}\n").as_bytes()).unwrap_err();
            assert!(wrong.starts_with("line 2 "), "{bad}: {wrong}");
        }
        assert!(parse(&[0xff]).is_err());
    }
}
