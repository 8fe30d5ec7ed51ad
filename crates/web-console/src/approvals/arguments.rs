//! The arguments of a request, one by one.

use maud::{Markup, html};
use serde_json::Value;

use crate::shown::{block, line};

/// Longest text that is shown beside its name. A longer one has separate lines.
const SHORT: usize = 100;

/// Shows each argument of an operation in JSON, with the way to it. Shows the text itself if it is no JSON.
pub(super) fn arguments(json: &str) -> Markup {
    let Ok(value) = serde_json::from_str::<Value>(json) else { return block(json) };
    let mut all = Vec::new();
    flatten(String::new(), &value, &mut all);
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

/// Adds each value that has no others in it. `serde_json` bounds the depth.
fn flatten(name: String, value: &Value, all: &mut Vec<(String, String)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (key, value) in fields {
                flatten(if name.is_empty() { key.clone() } else { format!("{name}.{key}") }, value, all);
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
