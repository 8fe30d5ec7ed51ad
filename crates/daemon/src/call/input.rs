//! A call's arguments for the record: what was asked for, and never what a file holds. Of contents there stand size and
//! SHA-256, however short they are; other long texts are cut, and secrets are hidden later.

use ops::{EditChange, Operation, PatchChange};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

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
    hide_contents(operation, &mut value);
    shorten(&mut value);
    value
}

fn hide_contents(operation: &Operation, value: &mut Value) {
    match operation {
        Operation::Write(write) => value["content"] = stands_for(&write.content),
        Operation::Edit(edit) => match &edit.change {
            EditChange::StrReplace { old, new, .. } => {
                value["strReplace"]["oldStr"] = stands_for(old.as_bytes());
                value["strReplace"]["newStr"] = stands_for(new.as_bytes());
            }
            EditChange::Create { content } => value["create"]["content"] = stands_for(content.as_bytes()),
            EditChange::Insert { text, .. } => value["insert"]["text"] = stands_for(text.as_bytes()),
        },
        Operation::Patch(patch) => {
            // Its text names them, and stands here no more.
            value["paths"] = patch.paths().iter().map(ToString::to_string).collect();
            match patch.change() {
                PatchChange::Unified(diff) => value["unifiedDiff"] = stands_for(diff.as_bytes()),
                PatchChange::Envelope(envelope) => value["envelope"] = stands_for(envelope.as_bytes()),
                PatchChange::FrontMatter(_) => {
                    for (name, field) in value["updateFrontmatter"].as_object_mut().into_iter().flatten() {
                        if name != "path" && name != "ifMatchSha256" {
                            *field = stands_for(field.to_string().as_bytes());
                        }
                    }
                }
            }
        }
        Operation::Read(_)
        | Operation::List(_)
        | Operation::Glob(_)
        | Operation::Grep(_)
        | Operation::Exec(_)
        | Operation::Shell(_)
        | Operation::Delete(_)
        | Operation::Git(_)
        | Operation::Mcp(_) => {}
    }
}

/// Size and SHA-256 of a content.
fn stands_for(content: &[u8]) -> Value {
    json!({ "bytes": content.len(), "sha256": hex::encode(Sha256::digest(content)) })
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
    use worker::convert::operation_from_wire;

    use super::{of, shorten};

    const CONTENT: &str = "the content of a file";

    fn input(request: Value) -> Value {
        let request: v1::Operation = serde_json::from_value(request).unwrap();
        let input = of(&operation_from_wire(request).unwrap());
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
