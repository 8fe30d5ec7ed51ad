//! The parts of a request that the record keeps: the request itself, and never a file's content.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use wire::v1;

use super::Operation;

/// Longest text that the record keeps whole, bytes.
const LONGEST: usize = 1_024;
/// Characters that the record keeps of a longer text, and of a command's output.
const PREVIEW: usize = 256;

impl Operation {
    /// Returns the operation as a client would send it, such as `{"write": {…}}`. `to_json` converts messages to JSON.
    ///
    /// Arguments of an upstream server's tool are parsed, so that secrets in them are recognised by their names.
    pub fn json(&self, to_json: impl Fn(&v1::Operation) -> Value) -> Value {
        let mut json = to_json(&self.message());
        if let Some(message) = fields(&mut json) {
            self.described().take_apart(message);
        }
        json
    }

    /// Returns the operation for the record: without its kind, with size and SHA-256 in place of file contents, and with long texts cut.
    ///
    /// Secrets are redacted later.
    pub fn record(&self, to_json: impl Fn(&v1::Operation) -> Value) -> Value {
        let mut json = to_json(&self.outline());
        let Some(message) = fields(&mut json) else { return Value::Null };
        let operation = self.described();
        operation.take_apart(message);
        operation.hide_contents(message);
        shorten(message);
        message.take()
    }
}

/// Returns the fields inside of `{"write": {…}}`.
fn fields(json: &mut Value) -> Option<&mut Value> {
    json.as_object_mut()?.values_mut().next()
}

/// Returns the record's entry for content: its size in bytes and its SHA-256.
pub(super) fn stands_for(content: &[u8]) -> Value {
    json!({ "bytes": content.len(), "sha256": hex::encode(Sha256::digest(content)) })
}

/// Cuts long texts. The entry of a cut text contains its size and its SHA-256.
fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > LONGEST => {
            let mut cut = stands_for(text.as_bytes());
            cut["preview"] = beginning(text).into();
            *value = cut;
        }
        Value::Array(items) => items.iter_mut().for_each(shorten),
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        _ => {}
    }
}

pub(super) fn preview(text: &str) -> String {
    let mut preview = beginning(text).to_owned();
    if preview.len() < text.len() {
        preview.push('…');
    }
    preview
}

/// Returns the first characters of a text, cut after a space, or nothing if there is no space.
///
/// The text is redacted later, and half of a secret would not be recognised.
fn beginning(text: &str) -> &str {
    let Some((end, _)) = text.char_indices().nth(PREVIEW) else { return text };
    &text[..text[..end].rfind(char::is_whitespace).unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_cut_within_a_word() {
        let short = "x".repeat(PREVIEW);
        assert_eq!(beginning(&short), short);
        assert_eq!(beginning(&"x".repeat(PREVIEW + 1)), "");
        let secret = format!("{} TOKEN {}", "é ".repeat(120), "s".repeat(40));
        assert_eq!(beginning(&secret), format!("{} TOKEN", "é ".repeat(120)));
        assert_eq!(preview("a b"), "a b");
    }
}
