//! The arguments of a request, one by one.

use maud::{Markup, html};
use serde_json::Value;

use crate::shown::{block, line};

/// Longest text that is shown beside its name. A longer one has separate lines.
const SHORT: usize = 100;
/// Most arguments that have an element each. With more, an agent could make a page that no browser shows.
const MOST: usize = 2_000;

/// Shows each argument of an operation in JSON, with the way to it. Shows the text itself if it is no JSON, or has too many arguments.
pub(super) fn arguments(json: &str) -> Markup {
    let Ok(value) = serde_json::from_str::<Value>(json) else { return block(json) };
    let mut all = Vec::new();
    flatten(String::new(), &value, &mut all);
    if all.len() > MOST {
        return block(json);
    }
    html! {
        dl.arguments {
            @for (name, value) in &all {
                dt { (line(name)) }
                dd { (one(value)) }
            }
        }
    }
}

fn one(value: &str) -> Markup {
    if value.is_empty() {
        return html! { em { "empty" } };
    }
    if value.len() > SHORT || value.contains('\n') { block(value) } else { line(value) }
}

/// Adds each value that has no others in it, up to one more than are shown. `serde_json` bounds the depth.
fn flatten(name: String, value: &Value, all: &mut Vec<(String, String)>) {
    if all.len() > MOST {
        return;
    }
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                flatten(way(&name, key), value, all);
            }
        }
        Value::Array(values) if !values.is_empty() => {
            for (index, value) in values.iter().enumerate() {
                flatten(format!("{name}[{index}]"), value, all);
            }
        }
        Value::String(text) => all.push((name, text.clone())),
        other => all.push((name, other.to_string())),
    }
}

/// Adds a key to the way to a value. A key with other characters is quoted, so that it does not look like a way.
fn way(name: &str, key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let is_plain = !key.is_empty() && key.bytes().all(plain);
    match (is_plain, name.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{name}.{key}"),
        (false, _) => format!("{name}[{}]", Value::from(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_argument_has_its_name_and_value() {
        let json = r#"{"exec":{"argv":["ls","-l","a b"],"cwd":"/x","env":{},"stdin":"","timeout":3}}"#;
        let shown = arguments(json).into_string();
        for (name, value) in [
            ("exec.argv[0]", "ls"),
            ("exec.argv[2]", "a b"),
            ("exec.cwd", "/x"),
            ("exec.env", "{}"),
            ("exec.timeout", "3"),
        ] {
            let entry = format!(
                "<dt><bdi class=\"text\">{name}</bdi></dt><dd><bdi class=\"text\">{value}</bdi></dd>"
            );
            assert!(shown.contains(&entry), "{entry} is not in {shown}");
        }
        assert!(shown.contains("exec.stdin</bdi></dt><dd><em>empty</em>"), "{shown}");
    }

    #[test]
    fn no_key_looks_like_the_way_to_another_value() {
        let json = r#"{"a":{"b":1,"c":[2]},"a.b":3,"a.c[0]":4,"":{"a":5}}"#;
        let value: Value = serde_json::from_str(json).unwrap();
        let mut all = Vec::new();
        flatten(String::new(), &value, &mut all);
        let mut names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, [r#"[""].a"#, r#"["a.b"]"#, r#"["a.c[0]"]"#, "a.b", "a.c[0]"]);
    }

    #[test]
    fn more_arguments_than_a_browser_shows_are_one_text() {
        let json = |count: usize| format!("[{}]", vec!["7"; count].join(","));
        assert_eq!(arguments(&json(MOST)).into_string().matches("<dt>").count(), MOST);
        let shown = arguments(&json(MOST + 1)).into_string();
        assert_eq!(shown, format!("<pre class=\"text\">{}</pre>", json(MOST + 1)));
        assert!(!arguments(&json(100 * MOST)).into_string().contains("<dt>"));
    }

    #[test]
    fn names_and_values_are_hostile() {
        let json = "{\"<b>\":\"<script>\\u202e\\n</script>\",\"\\u001b\":[\"&\"]}";
        let shown = arguments(json).into_string();
        assert!(
            !shown.contains("<script") && !shown.contains("<b>") && !shown.contains(['\u{202e}', '\u{1b}']),
            "{shown}"
        );
        assert_eq!(arguments("<no json").into_string(), "<pre class=\"text\">&lt;no json</pre>");
        let deep = "[".repeat(100_000);
        assert!(arguments(&deep).into_string().starts_with("<pre"));
    }
}
