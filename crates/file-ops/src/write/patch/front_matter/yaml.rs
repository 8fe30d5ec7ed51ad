//! YAML to values and back, within bounds. The only module of this crate that calls the parser, besides [`super::entry`].
//!
//! The file is untrusted. The parser's input is short. Before values are created they are counted with anchors expanded, because a few
//! lines can expand to more values than there is memory.

use std::cell::Cell;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_yaml::{Mapping, Value};

use super::Invalid;

/// Most bytes of front matter.
const MAX_BYTES: usize = 64 * 1024;
/// Most levels of nesting.
const MAX_DEPTH: usize = 32;
/// Most values, with those that anchors expand to.
const MAX_NODES: usize = 50_000;
/// Most brackets. The parser's time grows with the square of their depth, and it does not report the depth early.
const MAX_BRACKETS: usize = 500;

/// Parses front matter, which has to be a mapping.
pub(super) fn parse(text: &str) -> Result<Value, Invalid> {
    if text.len() > MAX_BYTES {
        return Err(Invalid::new(Some(1), format!("the front matter has more than {MAX_BYTES} bytes")));
    }
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > MAX_BRACKETS {
        return Err(Invalid::new(
            Some(1),
            format!("the front matter has more than {MAX_BRACKETS} opening brackets"),
        ));
    }
    let left = Cell::new(MAX_NODES);
    Count { depth: MAX_DEPTH, left: &left }
        .deserialize(serde_yaml::Deserializer::from_str(text))
        .map_err(|error| invalid(&error))?;
    match serde_yaml::from_str(text).map_err(|error| invalid(&error))? {
        Value::Null => Ok(Value::Mapping(Mapping::new())),
        value @ Value::Mapping(_) => Ok(value),
        _ => Err(Invalid::new(Some(2), "the front matter is not a mapping of lines `key: value`")),
    }
}

fn invalid(error: &serde_yaml::Error) -> Invalid {
    // The parser does not see the opening line.
    Invalid::new(error.location().map(|at| at.line() + 1), error.to_string())
}

/// Returns true if two values are written alike: the order of keys counts.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (emit(a), emit(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// Formats the values as text.
pub(super) fn emit(value: &Value) -> Result<String, Invalid> {
    serde_yaml::to_string(value).map_err(|error| Invalid::new(None, error.to_string()))
}

/// Returns true if older readers of YAML take this plain text for a truth value, a date or a number. Here it is a string.
pub(super) fn is_ambiguous(plain: &str) -> bool {
    let word = plain.to_ascii_lowercase();
    let number = word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && word.bytes().all(|byte| byte.is_ascii_digit() || b"_:.-+tze box".contains(&byte));
    (number || ["y", "n", "yes", "no", "on", "off"].contains(&word.as_str()))
        && matches!(serde_yaml::from_str(plain), Ok(Value::String(_)))
}

/// Returns `text` with quotes around such values, if that keeps its meaning.
fn unambiguous(text: String, value: &Value) -> String {
    let quoted: String = text
        .split_inclusive('\n')
        .map(|line| {
            let end = line.trim_end_matches('\n');
            let start = end.rfind(": ").map(|at| at + 2).or_else(|| end.rfind("- ").map(|at| at + 2));
            match start.map(|start| end.split_at(start)) {
                Some((before, plain)) if is_ambiguous(plain) => format!("{before}'{plain}'\n"),
                _ => line.to_owned(),
            }
        })
        .collect();
    if quoted != text && serde_yaml::from_str::<Value>(&quoted).is_ok_and(|read| same(&read, value)) {
        quoted
    } else {
        text
    }
}

/// Returns the text of `key: value`, each line prefixed with `indent`.
pub(super) fn emit_entry(key: &str, value: &Value, indent: &str) -> Option<String> {
    let mapping: Mapping = [(Value::from(key), value.clone())].into_iter().collect();
    Some(indented(&readable(&Value::Mapping(mapping))?, indent))
}

/// Returns the text of `- item` for each item, each line prefixed with `indent`.
pub(super) fn emit_items(items: &[Value], indent: &str) -> Option<String> {
    Some(indented(&readable(&Value::Sequence(items.to_vec()))?, indent))
}

fn readable(value: &Value) -> Option<String> {
    Some(unambiguous(emit(value).ok()?, value))
}

fn indented(text: &str, indent: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines
        .map(|line| if line.trim().is_empty() { line.to_owned() } else { format!("{indent}{line}") })
        .collect()
}

/// Deserializer that counts values without creating them.
#[derive(Clone, Copy)]
struct Count<'b> {
    depth: usize,
    left: &'b Cell<usize>,
}

impl Count<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth = self
            .depth
            .checked_sub(1)
            .ok_or_else(|| E::custom(format!("more than {MAX_DEPTH} levels of nesting")))?;
        Ok(Self { depth, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Count<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| D::Error::custom(format!("more than {MAX_NODES} values")))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Count<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u128<E>(self, _: u128) -> Result<(), E> {
        Ok(())
    }

    fn visit_i128<E>(self, _: i128) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let seed = self.deeper()?;
        while access.next_element_seed(seed)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let seed = self.deeper()?;
        while access.next_key_seed(seed)?.is_some() {
            access.next_value_seed(seed)?;
        }
        Ok(())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<(), A::Error> {
        let (_tag, content) = access.variant::<String>()?;
        content.newtype_variant_seed(self.deeper()?)
    }
}
