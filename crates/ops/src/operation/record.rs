//! What the record keeps of a request: what was asked for, and never what a file holds.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use wire::v1;

use super::Operation;

/// Bytes of a text that the record keeps whole.
const LONGEST: usize = 1_024;
/// Characters of a longer text, and of a command's output.
const PREVIEW: usize = 256;

impl Operation {
    /// `{"write": {…}}`: as a client would send it, where `to_json` is the JSON of messages. Arguments of an upstream server's tool
    /// are taken apart, so that secrets in them are known by their names.
    pub fn json(&self, to_json: impl Fn(&v1::Operation) -> Value) -> Value {
        let mut json = to_json(&self.message());
        if let Some(message) = fields(&mut json) {
            self.described().take_apart(message);
        }
        json
    }

    /// For the record: without its kind, with size and SHA-256 in place of contents of files, and long texts cut. Secrets are
    /// hidden later.
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

/// `{"write": {…}}` → `{…}`.
fn fields(json: &mut Value) -> Option<&mut Value> {
    json.as_object_mut()?.values_mut().next()
}

/// The entry of a content in the record: its size in bytes and its SHA-256.
pub(super) fn stands_for(content: &[u8]) -> Value {
    json!({ "bytes": content.len(), "sha256": hex::encode(Sha256::digest(content)) })
}

/// Cuts long texts. The entry of one that is cut has its size and its SHA-256.
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

/// The first characters of a text. It is redacted later, and half of a secret does not look like one: the cut is after a space,
/// or nothing is kept.
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
