//! `bash`: a command line, in the foreground or as a process that keeps running.

use std::num::NonZeroU64;

use operations::Operation;
use schemars::JsonSchema;
use serde::Deserialize;
use wire::v1;

use super::Program;
use crate::limits::Limits;
use crate::tool::{NoOperation, ToolArguments};

/// Argument that is offered only where processes are available.
pub(super) const BACKGROUND: &str = "run_in_background";

/// Run a command line in the workspace. Each call starts anew in /workspace: a directory or variable that it sets is gone
/// afterwards. The answer has standard output, standard error and the exit code, so 2>&1 is not needed. At most
/// {max_output_bytes} bytes of each stream come back, the beginning and the end; send longer output to a file and read
/// parts of it. Everything that the command started is ended with it. Where another tool reads, finds, searches or
/// changes files, prefer it to commands. Example: {"command": "cargo test --lib", "timeout": 60000}
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bash {
    /// The command line.
    command: String,
    /// Milliseconds until it is ended, at most {max_timeout_s} seconds. Default: {default_timeout_s} seconds; in the
    /// background none.
    timeout: Option<NonZeroU64>,
    /// A few words for people on the purpose of the command. They change nothing.
    #[serde(rename = "description")]
    _description: Option<String>,
    /// Directory to start in. Default: /workspace.
    workdir: Option<String>,
    /// Let the command stay when the call is over, as a server should. The answer is its process_id, for the tool process.
    /// It gets no input. Default false.
    run_in_background: Option<bool>,
}

impl ToolArguments for Bash {
    fn operation(self, limits: &Limits) -> Result<Operation, NoOperation> {
        let cwd = self.workdir.unwrap_or_default();
        let program = Program::of(self.command);
        if self.run_in_background == Some(true) {
            let timeout_ms = self.timeout.map(NonZeroU64::get);
            return process(program, v1::ProcessRequest { cwd, timeout_ms, ..Default::default() });
        }
        let timeout_ms = Some(limits.timeout_ms(self.timeout));
        Ok(match program {
            Program::Command(command, args) => {
                Operation::try_from(v1::ExecRequest { command, args, cwd, timeout_ms, ..Default::default() })?
            }
            Program::Script(script) => {
                Operation::try_from(v1::ShellRequest { script, cwd, timeout_ms, ..Default::default() })?
            }
        })
    }
}

/// Returns `program` as a process. `request` sets everything else.
pub(super) fn process(program: Program, request: v1::ProcessRequest) -> Result<Operation, NoOperation> {
    let request = match program {
        Program::Command(command, args) => v1::ProcessRequest { command, args, ..request },
        Program::Script(script) => v1::ProcessRequest { script, ..request },
    };
    Ok(Operation::try_from(request)?)
}
