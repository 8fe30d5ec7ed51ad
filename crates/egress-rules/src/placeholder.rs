//! Texts that a run has in place of secrets.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::secret_name::SecretName;

/// Longest shape, bytes.
const MOST: usize = 128;
/// Numbers of random characters that are possible. The least cannot be guessed: 16 of 62 are 95 bits.
const RANDOM: RangeInclusive<u16> = 16..=128;
const LETTERS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// A variable of a run that has a text in place of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placeholder {
    pub secret: SecretName,
    pub shape: Shape,
}

/// The form of a placeholder, which a client may check: `key-{40}` is `key-` and 40 random letters and digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Shape {
    before: String,
    random: u16,
    after: String,
}

impl Shape {
    pub fn parse(text: &str) -> Result<Self, BadShape> {
        if text.len() > MOST {
            return Err(BadShape::Long);
        }
        let (before, rest) = text.split_once('{').ok_or(BadShape::Random)?;
        let (number, after) = rest.split_once('}').ok_or(BadShape::Random)?;
        let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if let Some(other) = before.chars().chain(after.chars()).find(|c| !is_letter(*c)) {
            return Err(BadShape::Character(other));
        }
        // The number has one form, so that equal shapes are equal texts.
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit()) && !number.starts_with('0');
        let random = number.parse::<u16>().ok().filter(|random| is_number && RANDOM.contains(random));
        let random = random.ok_or(BadShape::Random)?;
        Ok(Self { before: before.to_owned(), random, after: after.to_owned() })
    }

    /// Returns a text of this form. `random` returns uniform bytes; some of them are not used.
    pub fn fill(&self, mut random: impl FnMut() -> u8) -> String {
        let mut text = self.before.clone();
        for _ in 0..self.random {
            // The remainder of a byte beyond the last multiple would make some letters more likely.
            let letter = loop {
                let byte = usize::from(random());
                if byte < 256 - 256 % LETTERS.len() {
                    break LETTERS[byte % LETTERS.len()];
                }
            };
            text.push(char::from(letter));
        }
        text.push_str(&self.after);
        text
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{{{}}}{}", self.before, self.random, self.after)
    }
}

impl TryFrom<String> for Shape {
    type Error = BadShape;

    fn try_from(text: String) -> Result<Self, BadShape> {
        Self::parse(&text)
    }
}

impl From<Shape> for String {
    fn from(shape: Shape) -> Self {
        shape.to_string()
    }
}

/// Returns true for the name of an environment variable that a placeholder may have.
pub(crate) fn is_variable(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (1..=MOST).contains(&name.len())
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(is_letter)
}

/// A text that is no shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadShape {
    #[error("a shape has at most {MOST} bytes")]
    Long,
    #[error("a shape consists of letters, digits, `_`, `.`, `-` and one `{{N}}`; it also has {0:?}")]
    Character(char),
    #[error(
        "a shape has the number of its random characters in one `{{N}}`, from {} to {}, such as `key-{{40}}`",
        RANDOM.start(),
        RANDOM.end()
    )]
    Random,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_written_as_it_is_parsed_and_filled_with_letters() {
        for text in ["{16}", "key-{40}", "a.b_c-{128}.Z9", "{20}_x"] {
            let shape = Shape::parse(text).unwrap();
            assert_eq!(shape.to_string(), text);
            let mut next = 0_u8;
            let filled = shape.fill(|| {
                next = next.wrapping_add(97);
                next
            });
            let letters = filled.strip_prefix(&shape.before).and_then(|rest| rest.strip_suffix(&shape.after));
            let letters = letters.unwrap();
            assert_eq!(letters.len(), usize::from(shape.random), "{filled}");
            assert!(letters.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{filled}");
        }
    }

    #[test]
    fn each_letter_is_equally_likely() {
        let mut bytes = (0..=u8::MAX).cycle();
        let shape = Shape::parse("{124}").unwrap();
        // One turn through all bytes has each letter four times.
        let filled = shape.fill(|| bytes.next().unwrap()) + &shape.fill(|| bytes.next().unwrap());
        for letter in LETTERS {
            assert_eq!(filled.bytes().filter(|byte| byte == letter).count(), 4, "{letter}");
        }
    }

    #[test]
    fn texts_that_are_no_shape_are_refused() {
        for (text, error) in [
            ("", BadShape::Random),
            ("key-", BadShape::Random),
            ("{}", BadShape::Random),
            ("{15}", BadShape::Random),
            ("{129}", BadShape::Random),
            ("{016}", BadShape::Random),
            ("{+16}", BadShape::Random),
            ("{99999999999}", BadShape::Random),
            ("{16", BadShape::Random),
            ("16}", BadShape::Random),
            ("{16}{16}", BadShape::Character('{')),
            ("key {16}", BadShape::Character(' ')),
            ("key/{16}", BadShape::Character('/')),
            ("é{16}", BadShape::Character('é')),
            ("{16}\n", BadShape::Character('\n')),
        ] {
            assert_eq!(Shape::parse(text), Err(error), "{text:?}");
        }
        assert_eq!(Shape::parse(&format!("{}{{16}}", "a".repeat(125))), Err(BadShape::Long));
    }

    #[test]
    fn names_of_variables_are_those_of_a_shell() {
        assert!(["A", "_a", "MODEL_API_KEY", "a1"].into_iter().all(is_variable));
        assert!(!["", "1A", "A-B", "A B", "A=B", "é", "A\0"].into_iter().any(is_variable));
    }
}
