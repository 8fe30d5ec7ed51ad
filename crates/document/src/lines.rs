//! Finds the line of a key. The parser reports lines only in errors, so this descends to the key and fails there.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// One step from the top of a file to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Key(String),
    Index(usize),
}

/// Returns the 1-based line of the key (or list item) at `path`. `occurrence` counts equal keys at the last step from
/// 0.
pub fn line_of(text: &str, path: &[Step], occurrence: usize) -> Option<usize> {
    if path.is_empty() {
        return None;
    }
    let found = Descend { path, occurrence }.deserialize(serde_yaml::Deserializer::from_str(text));
    found.err().and_then(|here| here.location()).map(|at| at.line())
}

/// Descends to the value at `path`, and fails there on purpose.
#[derive(Clone, Copy)]
struct Descend<'p> {
    path: &'p [Step],
    occurrence: usize,
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
        f.write_str("here")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((Step::Key(wanted), rest)) = self.path.split_first() else { return Err(here()) };
        let mut key = Key { wanted, last: rest.is_empty(), skip: self.occurrence };
        while let Some(found) = access.next_key_seed(&mut key)? {
            if found {
                return access.next_value_seed(Descend { path: rest, ..self });
            }
            access.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let Some((Step::Index(wanted), rest)) = self.path.split_first() else { return Err(here()) };
        for _ in 0..*wanted {
            access.next_element::<IgnoredAny>()?;
        }
        access.next_element_seed(Descend { path: rest, ..self })?;
        Ok(())
    }
}

/// Compares a key with the wanted one. At the end of the path it fails on that key on purpose.
struct Key<'p> {
    wanted: &'p str,
    last: bool,
    skip: usize,
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
        match (key == self.wanted, self.last, self.skip) {
            (false, _, _) => Ok(false),
            (true, false, _) => Ok(true),
            (true, true, 0) => Err(here()),
            (true, true, _) => {
                self.skip -= 1;
                Ok(false)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_keys_items_and_repeated_keys() {
        let text = "# a policy\nprofiles:\n  one:\n    exec:\n      rules:\n        - prefix: [a]\n          decision: ask\n        - prefix: [b]\n          decision: x\n  one: 3\n";
        let key = |name: &str| Step::Key(name.to_owned());
        let rules = [key("profiles"), key("one"), key("exec"), key("rules")];
        assert_eq!(line_of(text, &rules, 0), Some(5));
        assert_eq!(line_of(text, &[&rules[..], &[Step::Index(1)]].concat(), 0), Some(8));
        assert_eq!(line_of(text, &[&rules[..], &[Step::Index(1), key("decision")]].concat(), 0), Some(9));
        assert_eq!(line_of(text, &rules[..2], 0), Some(3));
        assert_eq!(line_of(text, &rules[..2], 1), Some(10));
        assert_eq!(line_of(text, &[key("roles")], 0), None);
        assert_eq!(line_of("a: [x, y]", &[key("a"), Step::Index(1)], 0), Some(1));
    }
}
