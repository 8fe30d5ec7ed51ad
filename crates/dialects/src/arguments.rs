//! A model's arguments: hostile JSON, checked once against the schema of the tool's type.
//!
//! This module bounds the size, and serde_json bounds the depth. Messages stay short for any text. The check precedes serde's because its
//! messages are for models: they name the argument and describe valid values.

use std::borrow::Cow;
use std::fmt;

use operations::Reason;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::{Map, Value};
use text::excerpt;

use crate::failure::ParseFailure;

/// Most bytes of JSON that are parsed.
const MAX_JSON: usize = 4 * 1024 * 1024;

/// Argument of a tool, or member of one.
pub(crate) struct Parameter<'a> {
    pub(crate) name: &'a str,
    /// False for an optional argument, which may be `null`, too.
    pub(crate) required: bool,
    pub(crate) schema: &'a Value,
}

/// Returns the members of an object: the required ones in the order of the type, then the others by name.
pub(crate) fn parameters(schema: &Value) -> impl Iterator<Item = Parameter<'_>> {
    let required = move || schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let first = required().map(move |name| (name, &schema["properties"][name]));
    let all = schema["properties"].as_object().into_iter().flatten();
    let others = all.filter(move |(name, _)| required().all(|other| other != *name));
    let parameter = |required| move |(name, schema)| Parameter { name, required, schema };
    first
        .map(parameter(true))
        .chain(others.map(|(name, schema)| (name.as_str(), schema)).map(parameter(false)))
}

/// Parses one JSON object. Blank text means no arguments, because some models send that.
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

/// Checks arguments against the schema of a tool: known names, right types, and all required ones present.
pub(crate) fn check(tool: &str, schema: &Value, arguments: &Map<String, Value>) -> Result<(), ParseFailure> {
    match mismatch(tool, schema, arguments) {
        None => Ok(()),
        Some((name, message)) => Err(ParseFailure::argument(&name, message)),
    }
}

/// Returns the first member of the object `name` that does not fit, and the reason.
fn mismatch(name: &str, schema: &Value, object: &Map<String, Value>) -> Option<(String, String)> {
    if let Some(unknown) = object.keys().find(|key| schema["properties"].get(key.as_str()).is_none()) {
        let known: Vec<&str> = parameters(schema).map(|parameter| parameter.name).collect();
        let message = format!("is not an argument of {name}; it takes {}", known.join(", "));
        return Some((excerpt(unknown), message));
    }
    parameters(schema).find_map(|Parameter { name, required, schema }| {
        let message = match object.get(name) {
            None | Some(Value::Null) if !required => return None,
            None => "is missing".to_owned(),
            Some(value) => format!("must be {}", expected(name, schema, value)?),
        };
        Some((name.to_owned(), message))
    })
}

/// Returns a description of valid values of `name` if the value is invalid.
pub(crate) fn expected(name: &str, schema: &Value, value: &Value) -> Option<Cow<'static, str>> {
    let (fits, expected) = match (schema["type"].as_str()?, schema["items"]["type"].as_str()) {
        ("string", _) => match schema["enum"].as_array() {
            Some(options) => {
                let words: Vec<&str> = options.iter().filter_map(Value::as_str).collect();
                (options.contains(value), format!("one of {}", words.join(", ")).into())
            }
            None => (value.is_string(), "a string".into()),
        },
        ("integer", _) => match schema["minimum"].as_u64() {
            Some(least) => {
                let fits = value.as_u64().is_some_and(|number| number >= least);
                (fits, format!("a whole number, {least} or greater").into())
            }
            None => (value.is_i64(), "a whole number".into()),
        },
        ("boolean", _) => (value.is_boolean(), "true or false".into()),
        ("array", Some(items)) => {
            let length = schema["minItems"].as_u64();
            let fits = value.as_array().is_some_and(|values| {
                length.is_none_or(|length| values.len() as u64 == length)
                    && values.iter().all(|item| expected(name, &schema["items"], item).is_none())
            });
            let pair = "two whole numbers, such as [1, 40]".into();
            (fits, if length == Some(2) { pair } else { format!("an array of {items}s").into() })
        }
        _ => match value.as_object() {
            Some(object) if schema["additionalProperties"] == false => {
                let (member, message) = mismatch(name, schema, object)?;
                (false, format!("an object of its schema: {member}: {message}").into())
            }
            object => (object.is_some(), "an object".into()),
        },
    };
    (!fits).then_some(expected)
}

/// Object without duplicate keys. The parser does not guess which of two values counts.
struct Object(Map<String, Value>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Object, A::Error> {
                let mut values = Map::new();
                while let Some((key, value)) = members.next_entry::<String, Value>()? {
                    if values.contains_key(&key) {
                        return Err(A::Error::custom(format_args!("`{}` is given twice", excerpt(&key))));
                    }
                    values.insert(key, value);
                }
                Ok(Object(values))
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}
