//! `coffer call mcp`: a tool of an upstream MCP server.

use clap::Args;
use wire::v1::mcp_content::Type;
use wire::v1::operation::Kind as Operation;
use wire::v1::{McpContent, McpRequest, McpResult};

use super::{CallOptions, Target, make};
use crate::client::Context;
use crate::failure::Ended;
use crate::output::Output;

/// Call a tool of an MCP server that the policy names.
#[derive(Args, Debug)]
#[command(before_help = r#"Example: coffer call mcp 3f2a9c01 db query '{"sql":"select 1"}'"#)]
pub(crate) struct Mcp {
    #[command(flatten)]
    target: Target,
    /// The server's name in the policy.
    server: String,
    /// The tool's name on that server; `coffer call tools` lists the tools.
    tool: String,
    /// The arguments as one JSON object. Default: none.
    #[arg(value_name = "ARGS_JSON", default_value = "{}", hide_default_value = true)]
    arguments: String,
    #[command(flatten)]
    options: CallOptions,
}

impl Mcp {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let request = McpRequest { server: self.server, tool: self.tool, arguments_json: self.arguments };
        make(context, &self.target, self.options, Operation::Mcp(request)).await
    }
}

/// Prints texts unchanged, and a description for content of other types.
pub(super) fn render(result: &McpResult, data: &mut Output, talk: &mut Output) {
    for item in &result.content {
        let McpContent { data: content, mime_type, uri, .. } = item;
        match item.r#type() {
            Type::Text => data.raw(content).end_line(),
            Type::Resource if !item.is_base64 => data.raw(content).end_line(),
            Type::ResourceLink => data.word(uri).end_line(),
            _ => talk.word(&format!("left out: {} bytes of base64, {mime_type}", content.len())).end_line(),
        };
    }
    if result.content.is_empty() && !result.structured_content_json.is_empty() {
        data.raw(&result.structured_content_json).end_line();
    }
    if result.truncated {
        let McpResult { omitted_bytes, omitted_items, .. } = result;
        talk.word(&format!("{omitted_bytes} bytes of the answer were left out, {omitted_items} items whole"))
            .end_line();
    }
}
