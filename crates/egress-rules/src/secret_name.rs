//! Names of secrets.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest name, bytes.
const MOST: usize = 64;

/// The name of a secret in the daemon's configuration: lower-case letters, digits, `_` and `-`, the first a letter.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SecretName(String);

impl SecretName {
    pub fn parse(text: &str) -> Result<Self, BadSecretName> {
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
        let is_valid = text.len() <= MOST
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(is_letter);
        if is_valid { Ok(Self(text.to_owned())) } else { Err(BadSecretName) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for SecretName {
    type Error = BadSecretName;

    fn try_from(text: String) -> Result<Self, BadSecretName> {
        Self::parse(&text)
    }
}

impl From<SecretName> for String {
    fn from(name: SecretName) -> Self {
        name.0
    }
}

/// A text that is no name of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret has 1 to {MOST} lower-case letters, digits, `_` and `-`, and begins with a letter, such as `model`"
)]
pub struct BadSecretName;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        let longest = "a".repeat(64);
        for text in ["a", "model", "pkg-2_x", &longest] {
            assert_eq!(SecretName::parse(text).unwrap().as_str(), text);
        }
        let long = "a".repeat(65);
        for text in ["", "Model", "2x", "-a", "_a", "a b", "a}", "a.b", "é", "a\n", &long] {
            assert_eq!(SecretName::parse(text), Err(BadSecretName), "{text:?}");
        }
    }
}
