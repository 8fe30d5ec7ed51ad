//! Parses text into a tree of plain values, within bounds. The only module that parses YAML, besides [`super::lines`].
//!
//! The tree keeps a mapping's entries in order and *with their duplicates*: in a map type, the last one would silently
//! win. Tags are refused, and anchors are limited by the number of nodes to which they expand.

use std::cell::Cell;
use std::fmt;

use super::problem::Problem;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Most bytes of a file.
pub const MAX_FILE_BYTES: usize = 1024 * 1024;
/// Most levels of nesting.
const MAX_DEPTH: usize = 24;
/// Most values in one file, counted after anchors are expanded.
const MAX_NODES: usize = 200_000;
/// Most brackets in one file.
///
/// The parser's time grows with the square of their depth, before it reports the depth. Their number bounds it, even if
/// some are in quotes or comments.
const MAX_BRACKETS: usize = 5_000;

#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// An absent value, or `null`.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number that is not negative.
    Number(u64),
    /// A number with a fraction, or with an exponent.
    Fraction(f64),
    /// Any other number. No setting has such a value.
    OtherNumber,
    Text(String),
    List(Vec<Node>),
    /// A mapping in order, with duplicates.
    Map(Vec<(String, Node)>),
}

impl Node {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Flag(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Fraction(_) | Self::OtherNumber => "a negative, fractional or huge number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Text that is not usable YAML.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed {
    pub line: Option<usize>,
    pub message: String,
}

impl Malformed {
    /// Turns it into the only problem of a file.
    pub fn in_file(self, file: &str) -> Problem {
        Problem { line: self.line, ..Problem::in_file(file, self.message) }
    }
}

pub fn parse(text: &str) -> Result<Node, Malformed> {
    let refused = |message: String| Malformed { line: None, message };
    if text.len() > MAX_FILE_BYTES {
        return Err(refused(format!("larger than {MAX_FILE_BYTES} bytes")));
    }
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > MAX_BRACKETS {
        return Err(refused(format!("more than {MAX_BRACKETS} opening brackets")));
    }
    let left = Cell::new(MAX_NODES);
    Seed { depth: MAX_DEPTH, left: &left }
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .map_err(|error| Malformed { line: error.location().map(|at| at.line()), message: error.to_string() })
}

#[derive(Clone, Copy)]
struct Seed<'b> {
    depth: usize,
    left: &'b Cell<usize>,
}

impl Seed<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth = self
            .depth
            .checked_sub(1)
            .ok_or_else(|| E::custom(format!("more than {MAX_DEPTH} levels of nesting")))?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| D::Error::custom(format!("more than {MAX_NODES} values")))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Flag(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(u64::try_from(value).map_or(Node::OtherNumber, Node::Number))
    }

    fn visit_u128<E>(self, _: u128) -> Result<Node, E> {
        Ok(Node::OtherNumber)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Node, E> {
        Ok(Node::OtherNumber)
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let seed = self.deeper()?;
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(seed)? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Node, A::Error> {
        let seed = self.deeper()?;
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<String>()? {
            entries.push((key, access.next_value_seed(seed)?));
        }
        Ok(Node::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn keeps_duplicates_and_order() {
        let tree = parse("b: 1\na: [x, true, -1]\nb:\n").unwrap();
        assert_eq!(
            tree,
            Node::Map(vec![
                ("b".into(), Node::Number(1)),
                ("a".into(), Node::List(vec![Node::Text("x".into()), Node::Flag(true), Node::OtherNumber])),
                ("b".into(), Node::Null),
            ])
        );
    }

    #[test]
    fn a_syntax_error_has_its_position() {
        assert_eq!(parse("a: 1\nb: @x\nc: 2\n").unwrap_err().line, Some(2));
        assert!(parse("a: !secret 1\n").is_err());
        assert!(parse("a: 1\n---\nb: 2\n").is_err());
    }

    #[test]
    fn bombs_are_refused_quickly() {
        let lol = (1..=9).fold("a0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned(), |text, i| {
            let before = format!("*a{},", i - 1).repeat(9);
            text + &format!("a{i}: &a{i} [{before}]\n")
        });
        let wide = format!("a: &a [{}]\nb: [{}]\n", "x,".repeat(250_000), "*a,".repeat(120_000));
        let bombs = [
            "[".repeat(200_000),
            "[".repeat(MAX_BRACKETS),
            "{a: ".repeat(MAX_BRACKETS),
            "['".repeat(MAX_BRACKETS),
            "- ".repeat(500_000),
            "? ".repeat(500_000),
            "a:\n".repeat(300_000),
            (0..2000).map(|i| " ".repeat(i % 900) + "a:\n").collect(),
            "&a ".repeat(300_000),
            lol,
            wide,
            "x".repeat(MAX_FILE_BYTES + 1),
        ];
        for bomb in bombs {
            let cost = effort::processor_time(|| {
                // Many equal keys are no syntax error: they are reported later, as duplicates.
                assert!(parse(&bomb).is_err() || bomb.starts_with("a:\n"), "{}…", &bomb[..20]);
            });
            assert!(cost < Duration::from_secs(10), "{}… {cost:?}", &bomb[..20]);
        }
    }
}
