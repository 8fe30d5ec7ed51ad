//! Requests to call a tool of an upstream MCP server.

use serde_json::{Map, Value};

use super::Malformed;
use crate::{McpTool, Operation};

/// Bytes of the arguments.
const MAX_ARGUMENTS: usize = 256 * 1024;
/// Levels of objects and lists in the arguments.
const MAX_DEPTH: usize = 32;

/// Becomes [`crate::Mcp`].
#[derive(Debug, Clone, Default)]
pub struct Mcp {
    /// The server's name in the policy.
    pub server: String,
    /// The tool's name as the server says it.
    pub tool: String,
    /// One JSON object of at most 256 KiB and 32 levels; empty is `{}`.
    pub arguments_json: String,
}

impl Mcp {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        let tool = McpTool::new(&self.server, &self.tool)?;
        Ok(Operation::Mcp(crate::Mcp { tool, arguments: arguments(&self.arguments_json)? }))
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
            format!("is no JSON: line {}, column {}", error.line(), error.column()),
        )),
    }
}

/// Whether a value has at most so many levels.
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

    fn parse(json: &str) -> Result<Operation, Malformed> {
        Mcp { server: "s".into(), tool: "t".into(), arguments_json: json.into() }.into_operation()
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
