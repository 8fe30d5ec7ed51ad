//! JSON Schemas of a server's tools: bounded before they are compiled, then used to check arguments and answers.
//!
//! The server writes the schema and the answer, so either could make a check endless. Therefore a schema may refer only to its own
//! definitions, and not in a circle. This gives it a finite size, counted with references followed. The product of this size and the size
//! of the value is bounded. Patterns are compiled by an engine that does not backtrack. No document is fetched.

use std::collections::HashMap;
use std::error::Error;

use boon::{CompileError, Compiler, ErrorKind, SchemaIndex, Schemas, UrlLoader, ValidationError};
use regex::RegexBuilder;
use serde_json::Value;

/// Most bytes of one schema as JSON.
const MAX_BYTES: usize = 64 * 1024;
/// Most levels of one schema.
const MAX_DEPTH: usize = 48;
/// Most values in one schema, with references followed.
const MAX_SIZE: u64 = 20_000;
/// Largest product of the size of a schema and the size of a value.
const MAX_WORK: u64 = 50_000_000;
/// Most bytes of a pattern, and of its compiled form.
const MAX_PATTERN: usize = 1_024;
const MAX_COMPILED: usize = 256 * 1024;
/// Most characters of a message about a value that does not fit.
const SAID: usize = 300;

/// Keywords that change what a reference means.
const UNKNOWN: [&str; 7] =
    ["$id", "id", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"];

/// Name of a schema while it is compiled. It is never fetched.
const NAME: &str = "urn:schema";

pub(super) struct Schema {
    schemas: Schemas,
    root: SchemaIndex,
    size: u64,
}

/// Retriever that refuses every reference to another document.
struct Nothing;

impl UrlLoader for Nothing {
    fn load(&self, _: &str) -> Result<Value, Box<dyn Error>> {
        Err("nothing is fetched".into())
    }
}

impl Schema {
    /// Compiles a schema, or says why it cannot be used.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        if schema.to_string().len() > MAX_BYTES {
            return Err(format!("has more than {MAX_BYTES} bytes"));
        }
        let mut sizes = Sizes { root: schema, known: HashMap::new() };
        let size = sizes.of(schema, MAX_DEPTH)?;
        let mut compiler = Compiler::new();
        compiler.use_loader(Box::new(Nothing));
        let mut schemas = Schemas::new();
        let unusable = |error: CompileError| format!("is no schema: {}", shortened(&error.to_string()));
        compiler.add_resource(NAME, schema.clone()).map_err(unusable)?;
        let root = compiler.compile(NAME, &mut schemas).map_err(unusable)?;
        Ok(Self { schemas, root, size })
    }

    /// Checks a value. The error says where and how it does not fit.
    pub(super) fn check(&self, value: &Value) -> Result<(), String> {
        if self.size.saturating_mul(count(value)) > MAX_WORK {
            return Err("it is too large to be checked".to_owned());
        }
        self.schemas.validate(value, self.root).map_err(|error| {
            let error = first_cause(&error);
            let (at, said) = (error.instance_location.to_string(), shortened(&without_value(&error.kind)));
            if at.is_empty() { said } else { format!("{}: {said}", shortened(&at)) }
        })
    }
}

/// Returns the first of the errors that caused the others.
fn first_cause<'e, 's, 'v>(error: &'e ValidationError<'s, 'v>) -> &'e ValidationError<'s, 'v> {
    error.causes.first().map_or(error, first_cause)
}

/// Formats the error without the value, which may be a secret.
fn without_value(kind: &ErrorKind<'_, '_>) -> String {
    match kind {
        ErrorKind::Format { want, .. } => format!("is not a valid {want}"),
        ErrorKind::Pattern { want, .. } => format!("does not match the pattern {want}"),
        ErrorKind::ContentEncoding { want, .. } | ErrorKind::ContentMediaType { want, .. } => {
            format!("is not {want}")
        }
        ErrorKind::Minimum { want, .. } => format!("must be at least {want}"),
        ErrorKind::Maximum { want, .. } => format!("must be at most {want}"),
        ErrorKind::ExclusiveMinimum { want, .. } => format!("must be more than {want}"),
        ErrorKind::ExclusiveMaximum { want, .. } => format!("must be less than {want}"),
        ErrorKind::MultipleOf { want, .. } => format!("must be a multiple of {want}"),
        other => other.to_string(),
    }
}

/// Accepts a pattern that is short, and small when compiled.
fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!("has a pattern of more than {MAX_PATTERN} bytes"));
    }
    let compiled = RegexBuilder::new(pattern).size_limit(MAX_COMPILED).build();
    compiled
        .map(drop)
        .map_err(|error| format!("has a pattern that cannot be used: {}", shortened(&error.to_string())))
}

fn shortened(text: &str) -> String {
    super::text::one_line(text, SAID)
}

/// Returns the number of values in a value, including itself and keys. Texts count by their length.
fn count(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(count).sum::<u64>(),
        Value::Object(members) => {
            1 + members.iter().map(|(key, value)| 1 + key.len() as u64 / 64 + count(value)).sum::<u64>()
        }
        Value::String(text) => 1 + text.len() as u64 / 64,
        _ => 1,
    }
}

/// Sizes of the schema's parts, with references followed.
struct Sizes<'s> {
    root: &'s Value,
    /// Sizes by reference; `None` while the reference is being followed.
    known: HashMap<String, Option<u64>>,
}

impl Sizes<'_> {
    fn of(&mut self, schema: &Value, levels: usize) -> Result<u64, String> {
        if levels == 0 {
            return Err(format!("has more than {MAX_DEPTH} levels, references followed"));
        }
        let mut size: u64 = 1;
        match schema {
            Value::Array(items) => {
                for item in items {
                    size = size.saturating_add(self.of(item, levels - 1)?);
                }
            }
            Value::Object(members) => {
                for (key, value) in members {
                    // Also refused as a name of a property, where it has no meaning: a reader could take it for the keyword.
                    if UNKNOWN.contains(&key.as_str()) && value.is_string() {
                        return Err(format!("uses `{key}`"));
                    }
                    match (key.as_str(), value) {
                        ("pattern", Value::String(pattern)) => check_pattern(pattern)?,
                        ("patternProperties", Value::Object(patterns)) => {
                            patterns.keys().try_for_each(|pattern| check_pattern(pattern))?;
                        }
                        _ => {}
                    }
                    let own = match (key.as_str(), value) {
                        ("$ref", Value::String(reference)) => self.referred(reference, levels - 1)?,
                        (_, value) => self.of(value, levels - 1)?,
                    };
                    size = size.saturating_add(1).saturating_add(own);
                }
            }
            _ => {}
        }
        if size > MAX_SIZE {
            return Err(format!("has more than {MAX_SIZE} values, references followed"));
        }
        Ok(size)
    }

    fn referred(&mut self, reference: &str, levels: usize) -> Result<u64, String> {
        match self.known.get(reference) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => return Err("refers to itself".to_owned()),
            None => {}
        }
        let pointer = reference.strip_prefix('#').ok_or("refers to something outside of itself")?;
        if !pointer.starts_with('/') || pointer.contains('%') {
            return Err("refers to itself, or by more than a plain path".to_owned());
        }
        let target =
            self.root.pointer(pointer).cloned().ok_or("refers to a definition that it does not contain")?;
        self.known.insert(reference.to_owned(), None);
        let size = self.of(&target, levels)?;
        self.known.insert(reference.to_owned(), Some(size));
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn refused(schema: &Value) -> String {
        Schema::compile(schema).err().unwrap_or_else(|| panic!("{schema}"))
    }

    #[test]
    fn values_are_held_against_a_schema() {
        let schema = Schema::compile(&json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"rows": {"type": "array", "items": {"$ref": "#/definitions/row"}}},
            "required": ["rows"],
            "definitions": {"row": {"type": "object", "properties": {"id": {"type": "integer", "minimum": 1}}}},
        }))
        .unwrap();
        assert_eq!(schema.check(&json!({"rows": [{"id": 1}]})), Ok(()));
        let said = schema.check(&json!({"rows": [{"id": 1}, {"id": "secret-value"}]})).unwrap_err();
        assert!(said.starts_with("/rows/1/id: ") && !said.contains("secret-value"), "{said}");
        assert!(schema.check(&json!({})).unwrap_err().contains("rows"));
    }

    #[test]
    fn schemas_with_outside_or_circular_references_are_refused() {
        for schema in [
            json!({"$ref": "https://evil.example/schema"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"$ref": "other"}),
            json!({"$ref": "#"}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
            json!({"$ref": "#/$defs/%61", "$defs": {"a": {}}}),
            json!({"$ref": "#/nowhere"}),
            json!({"$id": "https://evil.example/"}),
            json!({"properties": {"a": {"$dynamicRef": "#x"}}}),
            json!({"$schema": "https://evil.example/meta"}),
            json!({"type": "nonsense"}),
            json!({"pattern": "(a"}),
            json!({"pattern": "a{1000}{1000}{1000}"}),
            json!({"pattern": "x".repeat(2_000)}),
            json!({"patternProperties": {"a{1000}{1000}{1000}": {}}}),
            json!({"enum": ["x".repeat(70_000)]}),
        ] {
            let said = refused(&schema);
            assert!(said.len() < 400, "{said}");
        }
        let deep = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
        assert!(refused(&deep).contains("levels"));
    }

    #[test]
    fn a_schema_follows_its_draft() {
        let four = json!({
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"n": {"minimum": 1, "exclusiveMinimum": true}},
        });
        let schema = Schema::compile(&four).unwrap();
        assert_eq!(schema.check(&json!({"n": 2})), Ok(()));
        assert!(schema.check(&json!({"n": 1})).is_err());
        // In the newest draft, which a schema has that names none, it is a number.
        assert!(refused(&json!({"properties": {"n": {"exclusiveMinimum": true}}})).contains("schema"));
    }

    #[test]
    fn a_schema_that_grows_by_its_references_is_refused() {
        let mut defs = serde_json::Map::new();
        for n in 0..12 {
            let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
            defs.insert(format!("d{n}"), json!({"anyOf": [next, next, next]}));
        }
        defs.insert("d12".to_owned(), json!({"const": 1}));
        assert!(refused(&json!({"$ref": "#/$defs/d0", "$defs": defs})).contains("values"));
    }

    #[test]
    fn expensive_schema_checks_are_refused() {
        let any: Vec<Value> = (0..2_000).map(|n| json!({"const": n})).collect();
        let schema = Schema::compile(&json!({"type": "array", "items": {"anyOf": any}})).unwrap();
        let many: Value = (0..100_000).map(|_| json!(-1)).collect();
        assert!(schema.check(&many).unwrap_err().contains("too large"));
        assert_eq!(schema.check(&json!([1, 2, 3])), Ok(()));
    }

    fn any_schema() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(true)),
            Just(json!({"type": "string"})),
            Just(json!({"$ref": "#"})),
            Just(json!({"$ref": "#/properties/a"})),
            Just(json!({"$ref": "#/$defs/b"})),
            "[a-c*+(){}|0-9]{0,6}".prop_map(|pattern| json!({"pattern": pattern})),
            any::<i64>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(|all| json!({"allOf": all})),
                (inner.clone(), inner.clone())
                    .prop_map(|(a, b)| json!({"properties": {"a": a}, "$defs": {"b": b}})),
                inner.prop_map(|items| json!({"items": items})),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_schema_is_compiled_or_refused_and_any_check_ends(schema in any_schema()) {
            if let Ok(schema) = Schema::compile(&schema) {
                let _ = schema.check(&json!({"a": [{"a": "abc"}, [1], null]}));
            }
        }
    }
}
