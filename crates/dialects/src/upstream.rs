//! Tools of upstream MCP servers, which are offered beside every dialect's own and called in the same way.
//!
//! They have the same names in every dialect: the policy's alias, or else `mcp.SERVER.TOOL` for MCP clients and `mcp__SERVER__TOOL` for
//! vendors that allow no dots. All of these names are accepted, whatever the format of the list is.

use operations::{McpTool, Operation};
use serde_json::{Value, json};
use wire::v1;

use crate::failure::ParseFailure;
use crate::list::Format;

/// Tool of an upstream server, as a model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamTool {
    /// Server, and the tool's name there.
    pub tool: McpTool,
    /// Alias, if the policy sets one.
    pub alias: Option<String>,
    /// Description for the model: the server's words, marked as such.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

impl UpstreamTool {
    /// Returns its name in a vendor's format; `None` if it has no name that the vendor allows.
    pub fn name(&self, format: Format) -> Option<String> {
        self.alias.clone().or_else(|| match format {
            Format::Mcp => Some(self.tool.canonical().to_owned()),
            Format::OpenAi | Format::Anthropic => self.tool.undotted(),
        })
    }

    /// Returns its entry in a vendor's list.
    ///
    /// The server's hints about effects are left out, because the server could profit from false ones.
    pub fn entry(&self, format: Format) -> Option<Value> {
        let name = self.name(format)?;
        let Self { description, input_schema, .. } = self;
        Some(match format {
            Format::OpenAi => json!({
                "type": "function",
                "function": {"name": name, "description": description, "parameters": input_schema},
            }),
            Format::Anthropic => {
                json!({"name": name, "description": description, "input_schema": input_schema})
            }
            Format::Mcp => json!({"name": name, "description": description, "inputSchema": input_schema}),
        })
    }
}

/// Returns the call if it names a tool of an upstream server. `alias` resolves plain names.
pub fn parse_upstream(
    name: &str,
    arguments_json: &str,
    alias: impl FnOnce(&str) -> Option<McpTool>,
) -> Option<Result<Operation, ParseFailure>> {
    let tool = McpTool::parse(name).or_else(|| alias(name))?;
    let request = v1::McpRequest {
        server: tool.server().to_owned(),
        tool: tool.tool().to_owned(),
        arguments_json: arguments_json.to_owned(),
    };
    Some(Operation::try_from(request).map_err(|malformed| ParseFailure::malformed("arguments", &malformed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, alias: Option<&str>) -> UpstreamTool {
        UpstreamTool {
            tool: McpTool::parse(name).unwrap(),
            alias: alias.map(str::to_owned),
            description: "d".to_owned(),
            input_schema: json!({"type": "object"}),
        }
    }

    #[test]
    fn every_listed_name_is_read_back_as_the_tool() {
        for (name, alias) in
            [("mcp.db.query", None), ("mcp.db.rows.get", None), ("mcp.web.get", Some("http_get"))]
        {
            let listed = tool(name, alias);
            for format in [Format::OpenAi, Format::Anthropic, Format::Mcp] {
                let called = listed.name(format).unwrap();
                let known = |given: &str| (Some(given) == alias).then(|| listed.tool.clone());
                let operation = parse_upstream(&called, r#"{"a":1}"#, known).unwrap().unwrap();
                assert_eq!(operation.name(), name);
                if format != Format::Mcp {
                    assert!(
                        called.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)),
                        "{called}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_tool_without_a_name_that_a_vendor_allows_is_not_in_its_list() {
        let long = format!("mcp.db.{}", "x".repeat(100));
        assert_eq!(tool(&long, None).entry(Format::OpenAi), None);
        assert!(tool(&long, None).entry(Format::Mcp).is_some());
        assert!(tool(&long, Some("short")).entry(Format::Anthropic).is_some());
    }

    #[test]
    fn names_without_an_upstream_tool_are_left_to_the_dialect() {
        for name in ["read_file", "fs.read", "mcp", "mcp.x", "mcp__x"] {
            assert!(parse_upstream(name, "{}", |_| None).is_none(), "{name}");
        }
        let failure = parse_upstream("mcp.db.query", "[]", |_| None).unwrap().unwrap_err();
        assert_eq!(failure.field.as_deref(), Some("arguments"));
    }
}
