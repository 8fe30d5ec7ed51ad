//! `exec`: one tool that runs one command, its arguments as a list, with `{"stdout","stderr","exit_code"}` as result.

pub(crate) mod render;

use std::sync::LazyLock;

use operations::{Operation, Outcome};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wire::v1;

use crate::dialect::Dialect;
use crate::limits::Limits;
use crate::made::Made;
use crate::tool::{Effect, NoOperation, Tool, ToolArguments};

pub(crate) struct Exec;

impl Dialect for Exec {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn tools(&self) -> &'static [Tool] {
        &*TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    fn render_pending(&self, _made: &Made<'_>, approval_id: &str) -> String {
        render::render_pending(approval_id)
    }

    fn output_schema(&self, _tool: &Tool) -> Option<Value> {
        Some(render::schema())
    }
}

static TOOLS: LazyLock<[Tool; 1]> =
    LazyLock::new(|| [Tool::of::<ExecArguments>("exec", &["exec", "exec.read_only"], Effect::Changes)]);

/// Run one command in the workspace and get its stdout, stderr and exit code. The arguments are a list, one string each:
/// there is no shell, so that pipes, quotes, wildcards and && mean nothing. rm, sudo, dd and the like are refused where
/// they are named. Others may need a person's approval; those that take code (sh -c, python -c, awk, xargs) do wherever
/// any other does. Ended after {default_timeout_s} seconds. At most {max_output_bytes} bytes of each stream are shown.
/// Example: {"command": "cargo", "args": ["test", "--lib"], "cwd": "crates/parser"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExecArguments {
    /// Command to execute (e.g., 'ls', 'git', 'cargo', './run.sh')
    command: String,
    /// Command arguments as array (prevents shell injection). [] when there are none.
    args: Vec<String>,
    /// Optional working directory path, relative to the workspace. Default: the workspace.
    cwd: Option<String>,
}

impl ToolArguments for ExecArguments {
    fn operation(self, limits: &Limits) -> Result<Operation, NoOperation> {
        Ok(Operation::try_from(v1::ExecRequest {
            command: self.command,
            args: self.args,
            cwd: self.cwd.unwrap_or_default(),
            timeout_ms: Some(limits.timeout_ms(None)),
            ..Default::default()
        })?)
    }
}

#[cfg(test)]
mod tests;
