//! A call's arguments for the record: what was asked for, and never what a file holds. Of contents there stand size and
//! SHA-256, however short they are; other long texts are cut, and secrets are hidden later.

use ops::{Operation, stands_for};
use serde_json::Value;

use super::record::beginning;
use super::request;

/// Bytes of a text argument that the record keeps.
const LONGEST: usize = 1_024;

/// The operation's arguments as the record has them.
pub(crate) fn of(operation: &Operation) -> Value {
    let mut value = request::json(operation);
    // {"write": {...}} → {...}: the operation's name stands beside it.
    if let Value::Object(fields) = &mut value
        && let Some(only) = fields.values_mut().next()
    {
        value = only.take();
    }
    operation.hide_contents(&mut value);
    shorten(&mut value);
    value
}

/// Cuts long texts. What is cut says how long it was and what it hashes to.
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use wire::v1;

    use super::{Operation, of, shorten};

    const CONTENT: &str = "the content of a file";

    fn input(request: Value) -> Value {
        let request: v1::Operation = serde_json::from_value(request).unwrap();
        let input = of(&Operation::parse(request).unwrap());
        assert!(!input.to_string().contains(CONTENT), "{input}");
        input
    }

    #[test]
    fn contents_stand_in_no_record_however_short_they_are() {
        let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(CONTENT));
        let stands = json!({ "bytes": CONTENT.len(), "sha256": digest });
        let written = input(json!({ "write": { "path": "a", "content": CONTENT } }));
        assert_eq!((&written["path"], &written["content"]), (&json!("@project/a"), &stands));
        // The bytes themselves count, however they were sent.
        let encoded = ops::encode_base64(CONTENT.as_bytes());
        let written = input(
            json!({ "write": { "path": "a", "content": encoded, "encoding": "CONTENT_ENCODING_BASE64" } }),
        );
        assert_eq!(written["content"], stands);
        let replaced = json!({ "oldStr": CONTENT, "newStr": "x" });
        let edited = input(json!({ "edit": { "path": "a", "strReplace": replaced } }));
        assert_eq!(
            (&edited["strReplace"]["oldStr"], &edited["strReplace"]["newStr"]["bytes"]),
            (&stands, &json!(1))
        );
        let created = input(json!({ "edit": { "path": "a", "create": { "content": CONTENT } } }));
        assert_eq!(created["create"]["content"], stands);
        let inserted =
            input(json!({ "edit": { "path": "a", "insert": { "afterLine": "3", "text": CONTENT } } }));
        assert_eq!((&inserted["insert"]["text"], &inserted["insert"]["afterLine"]), (&stands, &json!("3")));
        let diff = format!("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-{CONTENT}\n+y\n");
        let patched = input(json!({ "patch": { "unifiedDiff": diff } }));
        assert_eq!(
            (&patched["paths"], &patched["unifiedDiff"]["bytes"]),
            (&json!(["@project/x"]), &json!(diff.len()))
        );
        let envelope = format!("*** Begin Patch\n*** Add File: y\n+{CONTENT}\n*** End Patch\n");
        let patched = input(json!({ "patch": { "envelope": envelope } }));
        assert_eq!(
            (&patched["paths"], &patched["envelope"]["bytes"]),
            (&json!(["@project/y"]), &json!(envelope.len()))
        );
        let update = json!({ "path": "a.md", "currentNodeId": CONTENT, "stepsCompletedAppend": [CONTENT] });
        let updated = &input(json!({ "patch": { "updateFrontmatter": update } }))["updateFrontmatter"];
        assert_eq!(updated["path"], "@project/a.md");
        assert!(
            updated["currentNodeId"]["bytes"].is_u64() && updated["stepsCompletedAppend"]["bytes"].is_u64()
        );
    }

    #[test]
    fn long_scripts_are_cut_and_can_be_told_apart() {
        let script = "echo a b c\n".repeat(1_000);
        let mut value = json!({ "script": script, "cwd": "@project" });
        shorten(&mut value);
        assert_eq!((value["script"]["bytes"].as_u64(), &value["cwd"]), (Some(11_000), &json!("@project")));
        assert!(value["script"]["preview"].as_str().is_some_and(|start| script.starts_with(start)));
        assert_eq!(value["script"]["sha256"].as_str().map(str::len), Some(64));
    }
}
