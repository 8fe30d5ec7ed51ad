//! Ids of objects: hashes in hexadecimal digits.

use std::fmt;

/// The hash that a repository names its objects by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ObjectFormat {
    /// SHA-1, which a request has that names none.
    #[default]
    Sha1,
    /// SHA-256.
    Sha256,
}

impl ObjectFormat {
    /// Returns the name, as the capability `object-format` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Sha1, Self::Sha256].into_iter().find(|format| format.as_str() == name)
    }

    /// Returns the number of digits of an id.
    pub fn digits(self) -> usize {
        match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        }
    }
}

/// Id of an object, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(Box<str>);

impl ObjectId {
    /// Parses an id. Returns `None` if this is no id of that format in lower case.
    pub fn parse(digits: &[u8], format: ObjectFormat) -> Option<Self> {
        let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        if digits.len() != format.digits() || !digits.iter().all(is_digit) {
            return None;
        }
        std::str::from_utf8(digits).ok().map(|text| Self(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for the id that means no object.
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|digit| digit == b'0')
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_the_digits_of_its_format() {
        for (text, format, is_id) in [
            ("0a".repeat(20), ObjectFormat::Sha1, true),
            ("0a".repeat(32), ObjectFormat::Sha256, true),
            ("0a".repeat(32), ObjectFormat::Sha1, false),
            ("0a".repeat(20), ObjectFormat::Sha256, false),
            ("0A".repeat(20), ObjectFormat::Sha1, false),
            ("0g".repeat(20), ObjectFormat::Sha1, false),
            (format!("{} ", "0".repeat(39)), ObjectFormat::Sha1, false),
            (String::new(), ObjectFormat::Sha1, false),
        ] {
            assert_eq!(ObjectId::parse(text.as_bytes(), format).is_some(), is_id, "{text}");
        }
    }

    #[test]
    fn the_id_of_no_object_is_all_zeros() {
        let is_zero = |text: &str| ObjectId::parse(text.as_bytes(), ObjectFormat::Sha1).unwrap().is_zero();
        assert!(is_zero(&"0".repeat(40)));
        assert!(!is_zero(&format!("{}1", "0".repeat(39))));
    }
}
