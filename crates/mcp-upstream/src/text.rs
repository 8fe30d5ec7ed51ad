//! Texts of servers, made harmless before a model or a person sees them: without hidden characters, and without those
//! that move the text around them.

use serde_json::Value;

/// The first `most` bytes of a text, without invisible characters. A text that was cut ends with `…`.
pub(super) fn harmless(text: &str, most: usize) -> String {
    let mut out = String::new();
    for c in text.chars().filter(|c| !is_hidden(*c)) {
        if out.len() + c.len_utf8() > most {
            out.push('…');
            break;
        }
        out.push(c);
    }
    out
}

/// The same on one line.
pub(super) fn one_line(text: &str, most: usize) -> String {
    harmless(&text.replace(['\n', '\t'], " "), most)
}

/// Every text in a JSON value, and every key, made harmless.
pub(super) fn harmless_value(value: &Value, most: usize) -> Value {
    match value {
        Value::String(text) => harmless(text, most).into(),
        Value::Array(items) => items.iter().map(|item| harmless_value(item, most)).collect(),
        Value::Object(members) => Value::Object(
            members.iter().map(|(key, value)| (harmless(key, most), harmless_value(value, most))).collect(),
        ),
        other => other.clone(),
    }
}

/// What cannot be seen, but line breaks and tabs. Selectors belong to an emoji or hide bytes: both are left out.
fn is_hidden(c: char) -> bool {
    !matches!(c, '\n' | '\t') && (::text::is_hidden(c) || matches!(c, '\u{fe00}'..='\u{fe0f}'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hidden_characters_are_left_out_and_length_is_bounded() {
        let tags: String =
            "ignore".chars().map(|c| char::from_u32(0xe0000 + u32::from(c)).unwrap()).collect();
        let text = format!("a\u{202e}b\u{200b}\u{1b}[31mc{tags}\nd\u{0}");
        assert_eq!(harmless(&text, 100), "ab[31mc\nd");
        assert_eq!(one_line("a\nb\tc", 100), "a b c");
        assert_eq!(harmless("éé", 3), "é…");
        assert_eq!(harmless(&"x".repeat(10), 10), "x".repeat(10));
    }

    #[test]
    fn keys_are_texts_too() {
        let value = json!({"a\u{200b}": ["b\u{7}", 1, null]});
        assert_eq!(harmless_value(&value, 10), json!({"a": ["b", 1, null]}));
    }
}
