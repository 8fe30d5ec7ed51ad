//! `exec`: one tool that runs one command, its arguments as a list, with `{"stdout","stderr","exit_code"}` as result.

pub(crate) mod render;

use ops::{Malformed, Operation, Outcome};
use serde_json::{Value, json};
use wire::v1;

use crate::arguments::Arguments;
use crate::dialect::Dialect;
use crate::failure::ParseFailure;
use crate::made::Made;
use crate::tool::{Effect, Kind, Parameter, Tool};

/// The dialect.
pub(crate) struct Exec;

impl Dialect for Exec {
    fn name(&self) -> &'static str {
        "exec"
    }

    fn tools(&self) -> &'static [Tool] {
        &TOOLS
    }

    fn framed(&self, made: &Made<'_>, outcome: &Outcome) -> String {
        render::render(made.operation, outcome)
    }

    fn render_pending(&self, _made: &Made<'_>, approval_id: &str) -> String {
        render::render_pending(approval_id)
    }

    fn output_schema(&self, _tool: &Tool) -> Option<Value> {
        Some(json!({
            "type": "object",
            "properties": {
                "stdout": {"type": "string"},
                "stderr": {"type": "string"},
                "exit_code": {"type": ["integer", "null"]},
                "signal": {"type": "integer"},
                "stdout_omitted_bytes": {"type": "integer"},
                "stderr_omitted_bytes": {"type": "integer"},
                "hint": {"type": "string"},
                "error": {
                    "type": "object",
                    "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
                    "required": ["type", "message"],
                },
            },
            "anyOf": [{"required": ["stdout", "stderr", "exit_code"]}, {"required": ["error"]}],
        }))
    }
}

static TOOLS: [Tool; 1] = [Tool {
    name: "exec",
    description: "Run one command in the workspace and get its stdout, stderr and exit code. The arguments are a list, \
                  one string each: there is no shell, so that pipes, quotes, wildcards and && mean nothing. rm, \
                  sudo, dd and the like are refused where they are named. Others may need a person's approval; those that \
                  take code (sh -c, python -c, awk, xargs) do wherever any other does. Ended after \
                  {default_timeout_s} seconds. At most {max_output_bytes} bytes of each stream are shown. \
                  Example: {\"command\": \"cargo\", \"args\": [\"test\", \"--lib\"], \"cwd\": \"crates/parser\"}",
    parameters: &[
        Parameter::required("command", Kind::Text, "Command to execute (e.g., 'ls', 'git', 'cargo')"),
        Parameter::required(
            "args",
            Kind::TextList,
            "Command arguments as array (prevents shell injection). [] when there are none.",
        ),
        Parameter::optional(
            "cwd",
            Kind::Text,
            "Optional working directory path, relative to the workspace. Default: the workspace.",
        ),
    ],
    operations: &["exec", "exec.read_only"],
    effect: Effect::Changes,
    repeatable: false,
    operation: exec,
}];

fn exec(arguments: &mut Arguments) -> Result<Operation, ParseFailure> {
    let request = v1::ExecRequest {
        command: arguments.text("command"),
        args: arguments.list("args"),
        cwd: arguments.text("cwd"),
        // The tool has no such argument.
        timeout_ms: Some(arguments.timeout_ms("timeout_ms")),
        ..Default::default()
    };
    Operation::try_from(request).map_err(|malformed| named(&malformed))
}

/// The arguments have the names of the canonical fields.
fn named(malformed: &Malformed) -> ParseFailure {
    ParseFailure::malformed(malformed.field.rsplit('.').next().unwrap_or_default(), malformed)
}

#[cfg(test)]
mod tests;
