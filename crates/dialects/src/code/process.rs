//! `process`: programs that keep running after their call. Their start is an operation; later calls are a [`ProcessAccess`].

use std::time::Duration;

use operations::{Operation, Reason};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use wire::v1;

use super::{Program, bash};
use crate::arguments::{check, object_of};
use crate::failure::ParseFailure;
use crate::limits::Limits;
use crate::process::{MAX_PROCESS_WAIT, ProcessAccess};
use crate::tool::{NoOperation, Tool, ToolArguments};

/// Programs that stay after their call, such as a server: start one, read its output, give it input, stop it, or list
/// those of this workspace. It stays until it ends, is stopped, or the run ends. An answer with output says how to ask for
/// what follows it. Example: {"action": "start", "command": "python3 -m http.server 8000 --bind 127.0.0.1"}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[allow(clippy::struct_field_names)] // as the API calls it
pub(super) struct Process {
    /// What to do. start needs command; output, input and stop need process_id.
    action: Action,
    /// With start: the command line, as in bash. Its input stays open.
    command: Option<String>,
    /// With start: directory to start in. Default: /workspace.
    workdir: Option<String>,
    /// With output, input and stop: the process, as start and list name it.
    process_id: Option<String>,
    /// With output: only what follows, as the last answer said, such as 120:0. Default: the end of what there is.
    after: Option<String>,
    /// With output: milliseconds to wait for more, or for its end, at most 60,000. Default 0.
    wait: Option<u64>,
    /// With input: the text, which has its own line feeds.
    input: Option<String>,
    /// With input: end of file after it. Default false.
    close: Option<bool>,
}

#[derive(Deserialize, JsonSchema, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Action {
    Start,
    Output,
    Input,
    Stop,
    List,
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Output => "output",
            Self::Input => "input",
            Self::Stop => "stop",
            Self::List => "list",
        }
    }

    /// Returns the arguments that belong to the action.
    const fn takes(self) -> &'static [&'static str] {
        match self {
            Self::Start => &["command", "workdir"],
            Self::Output => &["process_id", "after", "wait"],
            Self::Input => &["process_id", "input", "close"],
            Self::Stop => &["process_id"],
            Self::List => &[],
        }
    }
}

/// Meaning of a call.
enum Meaning {
    Start(Operation),
    Access(ProcessAccess),
}

impl Process {
    fn meaning(self) -> Result<Meaning, NoOperation> {
        self.check()?;
        let Self { action, command, workdir, process_id, after, wait, input, close } = self;
        let missing = |name: &str| {
            ParseFailure::argument(name, format!("is missing: the action {} needs it", action.name()))
        };
        let process_id = process_id.ok_or_else(|| missing("process_id"));
        Ok(Meaning::Access(match action {
            Action::Start => {
                let program = Program::of(command.ok_or_else(|| missing("command"))?);
                let request = v1::ProcessRequest {
                    cwd: workdir.unwrap_or_default(),
                    stdin: true,
                    ..Default::default()
                };
                return Ok(Meaning::Start(bash::process(program, request)?));
            }
            Action::Output => {
                let wait = Duration::from_millis(wait.unwrap_or(0));
                if wait > MAX_PROCESS_WAIT {
                    let most = MAX_PROCESS_WAIT.as_millis();
                    return Err(ParseFailure::argument("wait", format!("must be at most {most}")).into());
                }
                let after = after.as_deref().map(offsets).transpose()?;
                ProcessAccess::Output { process_id: process_id?, after, wait }
            }
            Action::Input => ProcessAccess::Input {
                process_id: process_id?,
                text: input.ok_or_else(|| missing("input"))?,
                close: close.unwrap_or_default(),
            },
            Action::Stop => ProcessAccess::Stop { process_id: process_id? },
            Action::List => ProcessAccess::List,
        }))
    }

    /// Refuses arguments that do not belong to the action.
    fn check(&self) -> Result<(), ParseFailure> {
        let given = [
            ("command", self.command.is_some()),
            ("workdir", self.workdir.is_some()),
            ("process_id", self.process_id.is_some()),
            ("after", self.after.is_some()),
            ("wait", self.wait.is_some()),
            ("input", self.input.is_some()),
            ("close", self.close.is_some()),
        ];
        let foreign = given.into_iter().find(|(name, given)| *given && !self.action.takes().contains(name));
        foreign.map_or(Ok(()), |(name, _)| {
            Err(ParseFailure::argument(name, format!("does not go with the action {}", self.action.name())))
        })
    }
}

/// Parses a position such as `120:0`.
fn offsets(after: &str) -> Result<[u64; 2], ParseFailure> {
    let parts =
        after.split_once(':').and_then(|(stdout, stderr)| Some([stdout.parse().ok()?, stderr.parse().ok()?]));
    parts.ok_or_else(|| {
        ParseFailure::argument("after", "must be a position from an earlier answer, such as 120:0")
    })
}

impl ToolArguments for Process {
    fn operation(self, _limits: &Limits) -> Result<Operation, NoOperation> {
        match self.meaning()? {
            Meaning::Start(operation) => Ok(operation),
            Meaning::Access(access) => {
                let message = format!("{} starts no process, so there is nothing to judge", access.name());
                Err(ParseFailure::new(Reason::InvalidArgument, message).into())
            }
        }
    }
}

/// Returns the access of a call of `tool` to a running process.
pub(super) fn access(tool: &Tool, arguments_json: &str) -> Option<ProcessAccess> {
    if tool.name != "process" {
        return None;
    }
    let arguments = object_of(arguments_json).ok()?;
    check(tool.name, &tool.schema, &arguments).ok()?;
    let process: Process = serde_json::from_value(Value::Object(arguments)).ok()?;
    match process.meaning().ok()? {
        Meaning::Start(_) => None,
        Meaning::Access(access) => Some(access),
    }
}
