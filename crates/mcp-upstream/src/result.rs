//! Converts a tool's answer, bounded and checked, into an outcome.

use operations::{McpContent, McpResult, Outcome, Reason, ToolFailure};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use wire::v1::mcp_content::Type;

use super::fault::Fault;
use super::text::harmless;
use super::tools::Tool;

/// Most items of one answer.
const MAX_ITEMS: usize = 256;
/// Most bytes of a media type, a name, or an address.
const MAX_LABEL: usize = 1_024;
/// Most bytes of a tool's description of its failure.
const MAX_ERROR: usize = 4_096;

/// Reads the result of `tools/call`. `text` is its JSON.
pub(super) fn outcome(tool: &Tool, answer: &Value, text: &str, most: u64) -> Outcome {
    let server = tool.id.server();
    let broken = |why: &str| Fault::Broken(why.to_owned()).failure(server, true);
    let Some(members) = answer.as_object() else { return Err(broken("its answer is not an object")) };
    let content = match members.get("content") {
        Some(Value::Array(items)) => items.as_slice(),
        None => &[],
        Some(_) => return Err(broken("the content of its answer is not a list")),
    };
    let mut budget = ResultBudget {
        left: usize::try_from(most).unwrap_or(usize::MAX),
        omitted_items: 0,
        omitted_bytes: 0,
    };
    let mut items = Vec::new();
    for item in content.iter().take(MAX_ITEMS) {
        let item =
            item.as_object().and_then(read).ok_or_else(|| broken("an item of its answer is invalid"))?;
        items.extend(budget.take(item));
    }
    for item in content.iter().skip(MAX_ITEMS) {
        budget.omit(item.to_string().len());
    }
    if members.get("isError") == Some(&Value::Bool(true)) {
        return Err(failed(server, &items));
    }
    let structured = members.get("structuredContent").filter(|value| !value.is_null());
    if let Some(schema) = &tool.output {
        let Some(value) = structured else {
            return Err(mismatch(server, "it has no structured content, which its schema requires"));
        };
        schema.check(value).map_err(|why| mismatch(server, &why))?;
    }
    // Without a schema, structured content only repeats the texts, and cannot be checked.
    let mut structured =
        structured.filter(|_| tool.output.is_some()).map(Value::to_string).unwrap_or_default();
    if structured.len() > budget.left {
        budget.omit(structured.len());
        structured.clear();
    }
    Ok(operations::OpResult::Mcp(McpResult {
        server: server.to_owned(),
        tool: tool.id.tool().to_owned(),
        content: items,
        structured_content_json: structured,
        truncated: budget.omitted_bytes > 0,
        omitted_items: budget.omitted_items,
        omitted_bytes: budget.omitted_bytes,
        total_bytes: text.len() as u64,
        sha256: hex::encode(Sha256::digest(text.as_bytes())),
    }))
}

/// Returns the failure of a tool that reports an error.
fn failed(server: &str, items: &[McpContent]) -> ToolFailure {
    let said: Vec<&str> =
        items.iter().filter(|item| item.r#type() == Type::Text).map(|item| item.data.as_str()).collect();
    let said = if said.is_empty() { "it does not say why".to_owned() } else { said.join("\n") };
    let message = format!("the tool failed: {}", harmless(&said, MAX_ERROR));
    ToolFailure::new(Reason::UpstreamFailed, message).with("server", server).with("kind", "tool")
}

fn mismatch(server: &str, why: &str) -> ToolFailure {
    let message = format!(
        "the answer of the MCP server `{server}` does not fit the tool's output schema and is not shown: \
         {why}; the call may have taken effect"
    );
    ToolFailure::new(Reason::UpstreamFailed, message).with("server", server).with("kind", "schema")
}

fn read(item: &Map<String, Value>) -> Option<McpContent> {
    let text = |key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    let label = |key: &str| text(key).map(|label| harmless(&label, MAX_LABEL)).unwrap_or_default();
    let of =
        |kind: Type| McpContent { r#type: kind.into(), mime_type: label("mimeType"), ..Default::default() };
    Some(match item.get("type")?.as_str()? {
        "text" => McpContent { data: text("text")?, mime_type: String::new(), ..of(Type::Text) },
        "image" => McpContent { data: base64(text("data")?)?, ..of(Type::Image) },
        "audio" => McpContent { data: base64(text("data")?)?, ..of(Type::Audio) },
        "resource_link" => McpContent {
            uri: harmless(&text("uri")?, MAX_LABEL),
            name: label("name"),
            ..of(Type::ResourceLink)
        },
        "resource" => {
            let resource = item.get("resource")?.as_object()?;
            let text = |key: &str| resource.get(key).and_then(Value::as_str).map(str::to_owned);
            let (data, is_base64) = match (text("text"), text("blob")) {
                (Some(text), _) => (text, false),
                (None, Some(blob)) => (base64(blob)?, true),
                (None, None) => return None,
            };
            McpContent {
                uri: harmless(&text("uri")?, MAX_LABEL),
                mime_type: text("mimeType").map(|label| harmless(&label, MAX_LABEL)).unwrap_or_default(),
                data,
                is_base64,
                ..of(Type::Resource)
            }
        }
        _ => return None,
    })
}

fn base64(data: String) -> Option<String> {
    data.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'='))
        .then_some(data)
}

/// Remaining size of the outcome.
struct ResultBudget {
    left: usize,
    omitted_items: u32,
    omitted_bytes: u64,
}

impl ResultBudget {
    fn omit(&mut self, bytes: usize) {
        self.omitted_items = self.omitted_items.saturating_add(1);
        self.omitted_bytes = self.omitted_bytes.saturating_add(bytes as u64);
    }

    /// Returns the item, with a text cut if needed. A picture that does not fit is dropped.
    fn take(&mut self, mut item: McpContent) -> Option<McpContent> {
        let McpContent { data, mime_type, uri, name, .. } = &item;
        let bytes = data.len() + mime_type.len() + uri.len() + name.len();
        if bytes <= self.left {
            self.left -= bytes;
            return Some(item);
        }
        if item.r#type() != Type::Text {
            self.omit(bytes);
            return None;
        }
        let end = (0..=self.left).rev().find(|end| item.data.is_char_boundary(*end)).unwrap_or(0);
        self.left = 0;
        if end == 0 {
            self.omit(bytes);
            return None;
        }
        self.omitted_bytes = self.omitted_bytes.saturating_add((bytes - end) as u64);
        item.data.truncate(end);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use operations::OpResult;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tools::{Tools, server};

    fn outcome(tool: &Tool, answer: &Value, most: u64) -> Outcome {
        super::outcome(tool, answer, &answer.to_string(), most)
    }

    fn tool(output: Option<&Value>) -> std::sync::Arc<Tool> {
        let entry = json!({"name": "t", "inputSchema": {"type": "object"}, "outputSchema": output});
        Tools::read("s", &server(&[]), vec![entry], &mut BTreeMap::new()).offered["t"].clone()
    }

    fn result(answer: &Value, most: u64) -> McpResult {
        match outcome(&tool(None), answer, most) {
            Ok(OpResult::Mcp(result)) => result,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_known_kind_of_item_passes_and_others_are_refused() {
        let items = json!([
            {"type": "text", "text": "a"},
            {"type": "image", "data": "YQ==", "mimeType": "image/png"},
            {"type": "audio", "data": "YQ==", "mimeType": "audio/wav"},
            {"type": "resource_link", "uri": "file:///x", "name": "x"},
            {"type": "resource", "resource": {"uri": "file:///x", "text": "b"}},
            {"type": "resource", "resource": {"uri": "file:///x", "blob": "YQ=="}},
        ]);
        assert_eq!(result(&json!({"content": items}), 1_000).content.len(), 6);
        for wrong in [
            json!([]),
            json!({"content": 1}),
            json!({"content": [1]}),
            json!({"content": [{"type": "text"}]}),
            json!({"content": [{"type": "image", "data": "<script>"}]}),
            json!({"content": [{"type": "resource", "resource": {"uri": "x"}}]}),
            json!({"content": [{"type": "other"}]}),
        ] {
            let failure = outcome(&tool(None), &wrong, 1_000).unwrap_err();
            assert_eq!(failure.details["kind"], "protocol", "{wrong}");
        }
    }

    #[test]
    fn structured_content_fits_its_schema_or_is_not_shown() {
        let tool = tool(Some(
            &json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}),
        ));
        let of = |structured: Value| {
            outcome(&tool, &json!({"content": [], "structuredContent": structured}), 1_000)
        };
        assert!(
            matches!(of(json!({"n": 1})), Ok(OpResult::Mcp(result)) if result.structured_content_json == r#"{"n":1}"#)
        );
        for wrong in [json!({"n": "planted"}), json!({}), json!(null), json!("x")] {
            let failure = of(wrong).unwrap_err();
            assert_eq!(
                (failure.reason, failure.details["kind"].as_str()),
                (Reason::UpstreamFailed, "schema")
            );
            assert!(!failure.message.contains("planted"));
        }
    }

    #[test]
    fn a_tool_that_failed_is_a_failure_in_its_own_words() {
        let answer = json!({"content": [{"type": "text", "text": "no such table"}], "isError": true});
        let failure = outcome(&tool(None), &answer, 1_000).unwrap_err();
        assert_eq!(
            (failure.message.as_str(), failure.details["kind"].as_str()),
            ("the tool failed: no such table", "tool")
        );
    }

    proptest! {
        #[test]
        fn shown_and_omitted_content_add_up(
            texts in prop::collection::vec("[aé]{0,40}", 0..12), most in 0_u64..200,
        ) {
            let items: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
            let result = result(&json!({"content": items}), most);
            prop_assert!(result.content.iter().all(|item| item.r#type() == Type::Text));
            let shown: usize = result.content.iter().map(|item| item.data.len()).sum();
            let all: usize = texts.iter().map(String::len).sum();
            prop_assert!(shown as u64 <= most);
            prop_assert_eq!(shown as u64 + result.omitted_bytes, all as u64);
            prop_assert_eq!(result.truncated, result.omitted_bytes > 0);
        }
    }
}
