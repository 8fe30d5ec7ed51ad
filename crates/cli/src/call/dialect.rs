//! `coffer call dialect`: a tool call as an agent's model writes it, and the answer as the model would see it.

use clap::Args;
use wire::v1::DialectCall;

use super::{CallOptions, Target, answer, explain, outcome};
use crate::client::Context;
use crate::failure::Ended;

/// Make a tool call as an agent's model writes it; prints what the model would see.
#[derive(Args, Debug)]
#[command(before_help = r#"Example: coffer call dialect 3f2a9c01 fs fs.read '{"path":"README.md"}'"#)]
pub(crate) struct ToolCall {
    #[command(flatten)]
    target: Target,
    /// `code`, `native`, `fs`, `exec`, `gateway`, `forge` or `editor`.
    #[arg(value_name = "DIALECT")]
    dialect: String,
    /// The tool's name in that dialect, such as fs.read.
    name: String,
    /// The arguments as one JSON object.
    #[arg(value_name = "ARGS_JSON")]
    arguments: String,
    #[command(flatten)]
    options: CallOptions,
}

impl ToolCall {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        // Arguments from a model can be malformed. The daemon checks them and reports errors to the model.
        let request = DialectCall { dialect: self.dialect, name: self.name, arguments_json: self.arguments };
        if context.explains {
            return explain::explain(context, &self.target, self.options, request).await;
        }
        let call = answer(context, &self.target, self.options, request).await?;
        outcome::show_rendered(context.ui, &call)
    }
}
