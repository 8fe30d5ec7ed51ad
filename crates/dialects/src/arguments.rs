//! A model's arguments: hostile JSON, checked once against the tool's parameters.
//!
//! Bounded in size here and in depth by serde_json. Whatever the text says, a message about it stays short.

use std::fmt;

use ops::Reason;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::tool::Tool;
use text::excerpt;

/// Bytes of JSON that are looked at.
const MAX_JSON: usize = 4 * 1024 * 1024;

/// Arguments that fit the parameters of a tool: known names, right kinds, none of the required ones missing.
#[derive(Debug)]
pub(crate) struct Arguments {
    values: Map<String, Value>,
    default_timeout_ms: u64,
}

impl Arguments {
    /// What fits `tool` in this JSON.
    pub(crate) fn parse(tool: &Tool, json: &str, limits: &Limits) -> Result<Self, ParseFailure> {
        Self::of(tool, Self::object_of(json)?, limits)
    }

    /// One JSON object. Blank text stands for no arguments: some models send that.
    pub(crate) fn object_of(json: &str) -> Result<Map<String, Value>, ParseFailure> {
        if json.len() > MAX_JSON {
            let message = format!("the arguments are longer than {MAX_JSON} bytes");
            return Err(ParseFailure::new(Reason::InvalidArgument, message));
        }
        let json = if json.trim().is_empty() { "{}" } else { json };
        let Object(values) = serde_json::from_str(json).map_err(|error| {
            let message = format!("the arguments are not one JSON object: {}", excerpt(&error.to_string()));
            ParseFailure::new(Reason::InvalidArgument, message)
        })?;
        Ok(values)
    }

    /// The same of an object.
    pub(crate) fn of(
        tool: &Tool,
        mut values: Map<String, Value>,
        limits: &Limits,
    ) -> Result<Self, ParseFailure> {
        let is_known = |key: &str| tool.parameters.iter().any(|known| known.name == key);
        if let Some(unknown) = values.keys().find(|key| !is_known(key)) {
            return Err(unknown_argument(tool, unknown));
        }
        for parameter in tool.parameters {
            match values.get(parameter.name) {
                None if parameter.required => {
                    return Err(ParseFailure::argument(parameter.name, "is missing"));
                }
                None => {}
                Some(Value::Null) if !parameter.required => {
                    values.remove(parameter.name);
                }
                Some(value) if parameter.kind.fits(value) => {}
                Some(value) => return Err(parameter.kind.refuse(parameter.name, value)),
            }
        }
        Ok(Self { values, default_timeout_ms: limits.default_timeout_s.saturating_mul(1_000) })
    }

    /// A `Text`, `Choice` or `Program`; empty when it is not there.
    pub(crate) fn text(&mut self, name: &str) -> String {
        match self.values.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        }
    }

    /// Whether it is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// An `Integer`.
    pub(crate) fn integer(&self, name: &str) -> Option<u64> {
        self.values.get(name).and_then(Value::as_u64)
    }

    /// An `Integer` with an upper bound far below `u32::MAX`, where greater ones therefore may end.
    pub(crate) fn small_integer(&self, name: &str) -> Option<u32> {
        self.integer(name).map(|number| u32::try_from(number).unwrap_or(u32::MAX))
    }

    /// Until when a command is ended, milliseconds: this `Integer`, or what holds for one that is given no time.
    pub(crate) fn timeout_ms(&self, name: &str) -> u64 {
        self.integer(name).unwrap_or(self.default_timeout_ms)
    }

    /// A `LineRange`.
    pub(crate) fn range(&self, name: &str) -> Option<(i64, i64)> {
        let ends = self.values.get(name)?.as_array()?;
        Some((ends.first()?.as_i64()?, ends.get(1)?.as_i64()?))
    }

    /// A `Flag`; false when it is not there.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.values.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// An `Object` or `AnyObject`; empty when it is not there.
    pub(crate) fn object(&mut self, name: &str) -> Self {
        match self.values.remove(name) {
            Some(Value::Object(values)) => Self { values, ..*self },
            _ => Self { values: Map::new(), ..*self },
        }
    }

    /// All of it.
    pub(crate) fn into_members(self) -> Map<String, Value> {
        self.values
    }

    /// An `ObjectList`; empty when it is not there.
    pub(crate) fn objects(&mut self, name: &str) -> Vec<Value> {
        match self.values.remove(name) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        }
    }

    /// A `TextList`; empty when it is not there.
    pub(crate) fn list(&mut self, name: &str) -> Vec<String> {
        let Some(Value::Array(items)) = self.values.remove(name) else { return Vec::new() };
        items
            .into_iter()
            .filter_map(|item| match item {
                Value::String(text) => Some(text),
                _ => None,
            })
            .collect()
    }
}

fn unknown_argument(tool: &Tool, name: &str) -> ParseFailure {
    let known: Vec<&str> = tool.parameters.iter().map(|parameter| parameter.name).collect();
    ParseFailure::argument(
        &excerpt(name),
        format!("is no argument of {}; it takes {}", tool.name, known.join(", ")),
    )
}

/// An object with no key twice: which of two values counts is not for the reader to guess.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Object, A::Error> {
                let mut values = Map::new();
                while let Some((key, value)) = entries.next_entry::<String, Value>()? {
                    if values.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("`{}` is there twice", excerpt(&key))));
                    }
                    values.insert(key, value);
                }
                Ok(Object(values))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}
