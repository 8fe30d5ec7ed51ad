//! Names certificates of servers that count no longer.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// SHA-256 of a certificate in DER.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(crate) fn of(der: &[u8]) -> Self {
        Self(Sha256::digest(der).into())
    }

    /// Parses 64 hexadecimal digits, with or without colons between bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = if text.len() == 95 { colons_removed(text)? } else { text.to_owned() };
        let mut bytes = [0; 32];
        let is_whole = digits.len() == 64 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)).filter(|_| is_whole) {
            *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
        }
        is_whole.then_some(Self(bytes))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Returns pairs of digits without the colons between them.
fn colons_removed(text: &str) -> Option<String> {
    let pairs: Vec<&str> = text.split(':').collect();
    pairs.iter().all(|pair| pair.len() == 2).then(|| pairs.concat())
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_as_openssl_prints_it_and_other_texts_are_none() {
        let one = Fingerprint::of(b"one");
        let digits = one.to_string();
        let pairs: Vec<&str> = (0..32).map(|at| &digits[2 * at..2 * at + 2]).collect();
        let colons = pairs.join(":").to_uppercase();
        assert_eq!(Fingerprint::parse(&digits), Some(one));
        assert_eq!(Fingerprint::parse(&colons), Some(one));
        for other in [
            "",
            &digits[1..],
            &colons[1..],
            &format!("{digits}0"),
            &digits.replacen(&digits[..1], "x", 1),
            &pairs.join(" "),
            &colons.replacen(':', "+", 1),
            &"\u{e9}".repeat(32),
            &"+1".repeat(32),
        ] {
            assert_eq!(Fingerprint::parse(other), None, "{other}");
        }
    }
}
