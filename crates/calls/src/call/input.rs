//! Writes an operation as JSON, for the record and for reviewers. [`operations::Operation`] knows which of its fields hold contents.

use operations::Operation;
use serde_json::Value;
use wire::v1;

/// Returns the operation as a client would send it: `{"write": {…}}`.
pub(super) fn json(operation: &Operation) -> Value {
    operation.json(to_json)
}

/// Returns the operation as the record has it.
pub(crate) fn of(operation: &Operation) -> Value {
    operation.record(to_json)
}

fn to_json(message: &v1::Operation) -> Value {
    serde_json::to_value(message).unwrap_or(Value::Null)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use wire::v1;

    use super::{Operation, of};

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
        let encoded = operations::encode_base64(CONTENT.as_bytes());
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
    fn long_scripts_are_cut_and_stay_distinguishable() {
        let script = "echo a b c\n".repeat(1_000);
        let value = input(json!({ "shell": { "script": script } }));
        assert_eq!((value["script"]["bytes"].as_u64(), &value["cwd"]), (Some(11_000), &json!("@project")));
        assert!(value["script"]["preview"].as_str().is_some_and(|start| script.starts_with(start)));
        assert_eq!(value["script"]["sha256"].as_str().map(str::len), Some(64));
    }
}
