//! Reads the list of revoked client certificates.
//!
//! It has the SHA-256 of each, as `openssl x509 -noout -fingerprint -sha256` prints it.

use std::collections::HashSet;

use sha2::{Digest as _, Sha256};

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
    use super::{Fingerprint, parse};

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
