//! Sketches a request that was refused before it became an operation, so that the record has every part of it that was
//! understood.
//!
//! The sketch is taken before the request is parsed, since parsing consumes it. It has only names, paths, and the arguments of a
//! dialect that [`NAMING`] lists. It never has the content of a file.

use serde_json::{Map, Value};
use wire::v1::call_request::Request;

/// Most bytes of one text that are kept.
const LONGEST: usize = 1_024;
/// Most items of a list that are kept.
const ITEMS: usize = 32;
/// Most bytes of a dialect's arguments that are parsed.
const MAX_JSON: usize = 64 * 1024;
/// Arguments of dialects' tools that name a place or a target, and hold no content.
const NAMING: &str = "path file_path filePath file directory cwd workdir pattern query glob include command cmd args operation name action \
     process_id";

/// The sketch of a request.
pub(super) struct Asked {
    /// Name of the operation, if the request is a typed one.
    pub(super) operation: Option<&'static str>,
    sketch: Value,
    /// Arguments of a dialect's tool.
    arguments_json: String,
}

impl Asked {
    pub(super) fn of(request: Option<&Request>) -> Self {
        let ((name, sketch), arguments_json) = match request {
            Some(Request::Operation(operation)) => (operations::sketch(operation), String::new()),
            Some(Request::Dialect(call)) if call.arguments_json.len() <= MAX_JSON => {
                (("", Value::Null), call.arguments_json.clone())
            }
            Some(Request::Dialect(_)) | None => (("", Value::Null), String::new()),
        };
        Self { operation: Some(name).filter(|name| !name.is_empty()), sketch, arguments_json }
    }

    /// Returns the sketch as the input of a record.
    pub(super) fn input(&self) -> Value {
        let mut fields = self.sketch.as_object().cloned().unwrap_or_default();
        if let Ok(Value::Object(arguments)) = serde_json::from_str(&self.arguments_json) {
            fields.extend(
                arguments.into_iter().filter(|(name, _)| NAMING.split(' ').any(|known| known == name)),
            );
        }
        let input: Map<_, _> =
            fields.into_iter().filter_map(|(name, value)| Some((name, short(value)?))).collect();
        if input.is_empty() { Value::Null } else { Value::Object(input) }
    }
}

/// Shortens a text, or a list of texts; drops every other value.
fn short(value: Value) -> Option<Value> {
    match value {
        Value::String(value) => Some(text(&value)),
        Value::Array(items) => items.into_iter().take(ITEMS).map(short).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

fn text(text: &str) -> Value {
    let end = (0..=text.len().min(LONGEST)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wire::v1::{DialectCall, WriteRequest, operation::Kind as Operation};

    use super::Asked;

    #[test]
    fn names_are_recorded_and_contents_are_not() {
        let write =
            WriteRequest { path: "../x".to_owned(), content: "secret".to_owned(), ..Default::default() };
        let asked = Asked::of(Some(&Operation::Write(write).into()));
        assert_eq!((asked.operation, asked.input()), (Some("write"), json!({ "path": "../x" })));

        let dialect = |arguments_json: &str| {
            let call = DialectCall { arguments_json: arguments_json.to_owned(), ..Default::default() };
            Asked::of(Some(&call.into())).input()
        };
        let arguments = r#"{"file_path": "/etc/x", "content": "secret", "args": ["a", "b"], "name": {"content": "secret"}}"#;
        assert_eq!(dialect(arguments), json!({ "file_path": "/etc/x", "args": ["a", "b"] }));
        for nothing in ["", "{", "[]", "1", r#"{"args": [["secret", {}]]}"#] {
            assert_eq!(dialect(nothing), json!(null), "{nothing}");
        }
        let long = "ä".repeat(2_000);
        assert_eq!(dialect(&json!({ "path": long }).to_string()), json!({ "path": "ä".repeat(512) }));
    }
}
