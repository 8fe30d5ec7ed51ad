//! Finds the lines of an entry in the text. The parser reports line numbers only in errors, so this code descends to a key and fails
//! there.

use std::fmt;
use std::ops::Range;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// Lines of an entry, as indices from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Lines from the entry's key to its last line, without comments and blank lines after it.
    pub(super) lines: Range<usize>,
    /// Text before the key.
    pub(super) indent: String,
}

/// Finds the entry at `path`: a key, or a key and a member of its mapping. Returns `None` if it does not exist or shares a line with
/// another.
pub(super) fn find(text: &str, path: &[&str]) -> Option<Entry> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let start = line_of(text, path, Which::Key)?;
    let next = line_of(text, path, Which::Next);
    let end = match (next, path) {
        (Some(next), _) => next,
        (None, [_]) => lines.len(),
        (None, [parent, ..]) => find(text, &[parent])?.lines.end,
        (None, []) => return None,
    };
    let first = *lines.get(start)?;
    let indent = &first[..first.len() - first.trim_start_matches(' ').len()];
    // The key is within brackets, or after another key, or after a `?`.
    if end <= start || !begins_with_key(first, path.last()?) {
        return None;
    }
    // A comment after an entry, indented at most as far as its key, belongs to the next entry.
    let is_behind = |line: &str| {
        let left = line.len() - line.trim_start_matches(' ').len();
        line.trim().is_empty() || (line.trim_start().starts_with('#') && left <= indent.len())
    };
    let length = lines[start..end].iter().rposition(|line| !is_behind(line))? + 1;
    Some(Entry { lines: start..start + length, indent: indent.to_owned() })
}

fn begins_with_key(line: &str, key: &str) -> bool {
    let line = line.trim_start_matches(' ');
    match line.as_bytes().first() {
        Some(b'"' | b'\'') => true,
        _ => line.strip_prefix(key).is_some_and(|behind| behind.trim_start().starts_with(':')),
    }
}

/// Wanted line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Line of the key.
    Key,
    /// Line of the next key in the same mapping.
    Next,
}

/// Returns the index of a line.
fn line_of(text: &str, path: &[&str], which: Which) -> Option<usize> {
    let found = Descend { path, which }.deserialize(serde_yaml::Deserializer::from_str(text));
    found.err().and_then(|here| here.location()).and_then(|at| at.line().checked_sub(1))
}

#[derive(Clone, Copy)]
struct Descend<'p> {
    path: &'p [&'p str],
    which: Which,
}

fn here<E: Error>() -> E {
    E::custom("here")
}

impl<'de> DeserializeSeed<'de> for Descend<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Descend<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((wanted, rest)) = self.path.split_first() else { return Ok(()) };
        let mut key = Key { wanted, fails: rest.is_empty() && self.which == Which::Key, fails_anyway: false };
        while let Some(found) = access.next_key_seed(&mut key)? {
            if found && !rest.is_empty() {
                return access.next_value_seed(Descend { path: rest, ..self });
            }
            key.fails_anyway = found;
            access.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    // The mapping ended without the key, so there is no position to fail at.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Deserializer that recognises the wanted key, and fails on it or on the key that follows.
struct Key<'p> {
    wanted: &'p str,
    fails: bool,
    fails_anyway: bool,
}

impl<'de> DeserializeSeed<'de> for &mut Key<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for &mut Key<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        match key == self.wanted {
            _ if self.fails_anyway => Err(here()),
            true if self.fails => Err(here()),
            found => Ok(found),
        }
    }
}
