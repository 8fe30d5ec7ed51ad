//! A dialect's tools in the formats of the vendors.

use serde_json::{Value, json};

use crate::dialect::Dialect;
use crate::limits::Limits;
use crate::network;
use crate::policy::Policy;
use crate::tool::{Effect, Tool};

/// Format of a list of tools, which differs between vendors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `tools[]` of OpenAI's chat completions.
    OpenAi,
    /// `tools` of Anthropic's messages.
    Anthropic,
    /// `tools` of MCP's `tools/list`.
    Mcp,
}

/// Tools of a dialect that are useful in a run, with the run's policy and limits.
pub struct Offer<'a> {
    /// The dialect whose tools are offered.
    pub dialect: &'static dyn Dialect,
    /// Policy of the run. A tool is offered if it can lead to a permitted operation.
    pub policy: Policy<'a>,
    /// Limits that descriptions name.
    pub limits: Limits,
}

impl Offer<'_> {
    /// Returns the tools, in the order of the dialect.
    fn tools(&self) -> impl Iterator<Item = &'static Tool> {
        let of_use =
            |tool: &&Tool| tool.operations.iter().any(|operation| (self.policy.permitted)(operation));
        self.dialect.tools().iter().filter(of_use)
    }

    /// Returns the first tool that runs commands.
    fn first_of_commands(&self) -> Option<&'static str> {
        self.tools().find(|tool| network::runs_commands(tool)).map(|tool| tool.name)
    }

    /// Returns a JSON array in a vendor's format.
    pub fn list(&self, format: Format) -> Value {
        let limits = self.dialect.limits(&self.limits);
        self.tools().map(|tool| self.entry(tool, &limits, format)).collect()
    }

    /// Returns the description of the tools for a prompt; `None` if the dialect has no such form.
    pub fn prompt(&self) -> Option<String> {
        let tools: Vec<_> = self.tools().collect();
        self.dialect.prompt(&tools, &self.dialect.limits(&self.limits), &self.policy)
    }

    /// Returns the entry of a tool. Only MCP allows dots in names; the others get the form without, which `parse` accepts, too.
    fn entry(&self, tool: &Tool, limits: &Limits, format: Format) -> Value {
        let (description, schema) = self.dialect.shown(tool, limits, &self.policy);
        let description = network::told(tool, &description, &self.policy, self.first_of_commands());
        match format {
            Format::OpenAi => {
                let mut function = json!({
                    "name": tool.undotted_name(),
                    "description": description,
                    "parameters": schema,
                });
                // Otherwise `strict` would need every optional argument to be required.
                if tool.is_strict() {
                    function["strict"] = true.into();
                }
                json!({"type": "function", "function": function})
            }
            Format::Anthropic => json!({
                "name": tool.undotted_name(),
                "description": description,
                "input_schema": schema,
            }),
            Format::Mcp => {
                let mut entry = json!({
                    "name": tool.name,
                    "description": description,
                    "inputSchema": schema,
                    "annotations": {
                        "readOnlyHint": tool.effect == Effect::Reads,
                        "destructiveHint": tool.effect == Effect::Changes,
                        "idempotentHint": tool.repeatable,
                        // Only commands can reach a network.
                        "openWorldHint": self.policy.network.is_some() && network::runs_commands(tool),
                    },
                });
                if let Some(output) = self.dialect.output_schema(tool) {
                    entry["outputSchema"] = output;
                }
                entry
            }
        }
    }
}
