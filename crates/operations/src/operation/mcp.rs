//! `mcp`: a tool of an upstream MCP server.

use jail::SandboxPath;
use serde_json::{Map, Value, json};
use wire::v1::{McpRequest, McpResult};

use super::{Answer, Class, Describe, Effect, Lane, Part, Request, Sketch};
use crate::{CommandLimits, Malformed, McpTool};

const CLASS: Class = Class { name: "mcp", lane: Lane::Upstream, effect: Effect::Foreign };

/// Most bytes of the arguments.
const MAX_ARGUMENTS: usize = 256 * 1024;
/// Most levels of objects and lists in the arguments.
const MAX_DEPTH: usize = 32;

/// Call a tool of an upstream MCP server. Only the server knows its effect, so it counts as a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mcp {
    /// The tool.
    pub tool: McpTool,
    /// Its arguments: at most 256 KiB of JSON in at most 32 levels.
    pub arguments: Map<String, Value>,
}

impl Request for Mcp {
    type Message = McpRequest;

    fn parse(message: McpRequest, _: CommandLimits) -> Result<Self, Malformed> {
        let tool = McpTool::new(&message.server, &message.tool)?;
        Ok(Self { tool, arguments: arguments(&message.arguments_json)? })
    }

    fn message(&self) -> McpRequest {
        let mut arguments = Value::Object(self.arguments.clone());
        // Sorted, so that equal arguments have equal bytes.
        arguments.sort_all_objects();
        McpRequest {
            server: self.tool.server().to_owned(),
            tool: self.tool.tool().to_owned(),
            arguments_json: arguments.to_string(),
        }
    }

    fn sketch(message: &McpRequest) -> Sketch {
        ("", json!({ "server": message.server, "tool": message.tool }))
    }
}

impl Describe for Mcp {
    fn class(&self) -> Class {
        CLASS
    }

    fn name(&self) -> &str {
        self.tool.canonical()
    }

    fn family(&self) -> &str {
        self.tool.family()
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        Vec::new()
    }

    fn tool(&self) -> Option<&McpTool> {
        Some(&self.tool)
    }

    fn take_apart(&self, message: &mut Value) {
        let (server, tool) = (self.tool.server(), self.tool.tool());
        *message = json!({ "server": server, "tool": tool, "arguments": self.arguments });
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![
            Part::Line(format!("MCP server: {}", self.tool.server())),
            Part::Line(format!("tool: {}", self.tool.tool())),
            Part::Values("arguments", &self.arguments),
        ]
    }
}

impl Answer for McpResult {
    fn check(&mut self) -> Result<(), Malformed> {
        Err(Malformed::new("mcp", "cannot be the result of a worker"))
    }

    fn facts(&self) -> Value {
        json!({
            "server": self.server, "tool": self.tool, "items": self.content.len(), "total_bytes": self.total_bytes,
            "sha256": self.sha256, "omitted_bytes": self.omitted_bytes, "truncated": self.truncated,
        })
    }
}

fn arguments(json: &str) -> Result<Map<String, Value>, Malformed> {
    const FIELD: &str = "mcp.arguments_json";
    if json.trim().is_empty() {
        return Ok(Map::new());
    }
    if json.len() > MAX_ARGUMENTS {
        return Err(Malformed::new(FIELD, format!("must have at most {MAX_ARGUMENTS} bytes")));
    }
    match serde_json::from_str(json) {
        Ok(Value::Object(arguments)) if arguments.values().all(|value| is_shallow(value, MAX_DEPTH - 1)) => {
            Ok(arguments)
        }
        Ok(Value::Object(_)) => Err(Malformed::new(FIELD, format!("has more than {MAX_DEPTH} levels"))),
        Ok(_) => Err(Malformed::new(FIELD, "must be a JSON object")),
        Err(error) => Err(Malformed::new(
            FIELD,
            format!("is not JSON: line {}, column {}", error.line(), error.column()),
        )),
    }
}

/// Returns true if a value has at most `levels` levels.
fn is_shallow(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(_) | Value::Object(_) if levels == 0 => false,
        Value::Array(items) => items.iter().all(|item| is_shallow(item, levels - 1)),
        Value::Object(members) => members.values().all(|member| is_shallow(member, levels - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<crate::Operation, Malformed> {
        McpRequest { server: "s".into(), tool: "t".into(), arguments_json: json.into() }.try_into()
    }

    #[test]
    fn arguments_are_one_bounded_object() {
        for json in ["", " ", "{}", r#"{"a":[1,{"b":null}]}"#] {
            assert!(parse(json).is_ok(), "{json}");
        }
        let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(&nested(31)).is_ok());
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_ARGUMENTS));
        for json in ["[]", "1", "{", "{\"a\":}", "{}{}", &nested(32), &nested(500), &long] {
            let malformed = parse(json).unwrap_err();
            assert_eq!(malformed.field, "mcp.arguments_json");
            assert!(malformed.message.len() < 100, "{malformed}");
        }
    }
}
