//! A dialect's tools in the formats that vendors take.

use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::tool::{Effect, Tool};

/// Vendor formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `tools[]` of OpenAI's chat completions.
    OpenAi,
    /// `tools` of Anthropic's messages.
    Anthropic,
    /// `tools` of MCP's `tools/list`.
    Mcp,
}

/// A JSON array of the tools that can lead to a permitted operation. `permitted` is asked for canonical names, such
/// as `git.commit`.
pub fn list(dialect: &dyn Dialect, format: Format, permitted: &dyn Fn(&str) -> bool) -> Value {
    let of_use = |tool: &&Tool| tool.operations.iter().any(|operation| permitted(operation));
    dialect.tools().iter().filter(of_use).map(|tool| entry(tool, format)).collect()
}

/// Only MCP allows dots in names; the others get the form without, which `parse` accepts, too.
fn entry(tool: &Tool, format: Format) -> Value {
    match format {
        Format::OpenAi => json!({
            "type": "function",
            "function": {
                "name": tool.undotted_name(),
                "description": tool.description,
                "parameters": tool.schema(),
            },
        }),
        Format::Anthropic => json!({
            "name": tool.undotted_name(),
            "description": tool.description,
            "input_schema": tool.schema(),
        }),
        Format::Mcp => json!({
            "name": tool.name,
            "description": tool.description,
            "inputSchema": tool.schema(),
            "annotations": {
                "readOnlyHint": tool.effect == Effect::Reads,
                "destructiveHint": tool.effect == Effect::Changes,
                "openWorldHint": false,
            },
        }),
    }
}
