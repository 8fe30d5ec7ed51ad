//! An operation as JSON, for the record and for reviewers.

use ops::Operation;
use serde_json::{Value, json};

/// `{"write": {…}}`: as a client would send it. Arguments of an upstream server's tool are taken apart, so that secrets in
/// them are known by their names.
pub(super) fn json(operation: &Operation) -> Value {
    if let Operation::Mcp(mcp) = operation {
        let (server, tool) = (mcp.tool.server(), mcp.tool.tool());
        return json!({ "mcp": { "server": server, "tool": tool, "arguments": mcp.arguments } });
    }
    serde_json::to_value(operation.message()).unwrap_or(Value::Null)
}
