//! Reads the file and turns it into a [`Config`]; sole user of the YAML library here.

#![expect(clippy::disallowed_methods, reason = "the configuration")]

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use super::{Config, Problem, Problems, raw, validate};

/// A configuration of this size is not one that a person wrote.
const MAX_BYTES: u64 = 256 * 1024;

/// Nesting that the file may have; the parser's cost grows with the square of it.
const MAX_BRACKETS: usize = 512;

/// Loads and validates `path`.
pub(crate) fn load(path: &Path) -> Result<Config, Problems> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
    match read {
        Err(error) => Err(only(format!("{} cannot be read: {error}", path.display()))),
        Ok(length) if length as u64 > MAX_BYTES => {
            Err(only(format!("{} is larger than {MAX_BYTES} bytes", path.display())))
        }
        Ok(_) => parse(&text),
    }
}

/// Parses and validates the text of a configuration.
pub(super) fn parse(text: &str) -> Result<Config, Problems> {
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > MAX_BRACKETS {
        return Err(only(format!("more than {MAX_BRACKETS} brackets: this is not a configuration")));
    }
    // To a value first: maps of a value refuse duplicate keys, which structs would let the last one win.
    let value: serde_yaml::Value =
        serde_yaml::from_str(text).map_err(|error| only(format!("is not valid YAML: {error}")))?;
    let value = if value.is_null() { serde_yaml::Value::Mapping(serde_yaml::Mapping::new()) } else { value };
    let raw: raw::Config =
        serde_yaml::from_value(value).map_err(|error| only(format!("cannot be understood: {error}")))?;
    validate::validate(raw)
}

fn only(message: String) -> Problems {
    Problems(vec![Problem { key: String::new(), message }])
}
