//! Removes hidden characters, and characters that move the text around them, from texts of servers before a model or a person sees them.

use serde_json::Value;

/// Returns the first `most` bytes of a text, without invisible characters. A text that was cut ends with `…`.
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

/// Works like [`harmless`], and puts the text on one line.
pub(super) fn one_line(text: &str, most: usize) -> String {
    harmless(&text.replace(['\n', '\t'], " "), most)
}

/// Makes every text and every key in a JSON value harmless.
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

/// Returns true for invisible characters except line breaks and tabs. Selectors belong to an emoji or hide bytes, so all of them are
/// removed.
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
