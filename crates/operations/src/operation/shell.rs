//! `shell`: a shell script.

use std::collections::BTreeMap;
use std::time::Duration;

use jail::{Mount, RelPath, SandboxPath};
use serde_json::json;
use wire::v1::{ExecResult, ProcessRequest, ShellRequest};

use super::check::{path_or_root, text};
use super::exec::{check_env, check_stdin, check_stdin_file, milliseconds, surroundings, timeout};
use super::{Class, Describe, Effect, Lane, Part, Request, Sketch};
use crate::{CommandLimits, Malformed, OpResult};

pub(super) const CLASS: Class = Class { name: "shell", lane: Lane::Container, effect: Effect::Runs };

pub(super) const MAX_SCRIPT: usize = 64 * 1024;

/// Run a shell script: `bash -lc SCRIPT`, or `sh -lc SCRIPT` where there is no bash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// The script, without NUL, not blank, within [`CommandLimits`].
    pub script: String,
    /// Working directory.
    pub cwd: SandboxPath,
    /// Additional environment, as for [`super::Exec`].
    pub env: BTreeMap<String, String>,
    /// Standard input, within [`CommandLimits`].
    pub stdin: Vec<u8>,
    /// A file whose content is the standard input in place of `stdin`.
    pub stdin_file: Option<SandboxPath>,
    /// Time until all of its processes are ended. More than zero, at most [`CommandLimits::LONGEST_TIMEOUT`].
    pub timeout: Duration,
}

impl Shell {
    /// Creates a script that runs in the project, with the default timeout.
    pub fn new(script: impl Into<String>) -> Self {
        Self {
            script: script.into(),
            cwd: SandboxPath::new(Mount::Project, RelPath::root()),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            stdin_file: None,
            timeout: CommandLimits::DEFAULT_TIMEOUT,
        }
    }

    /// Validates a request against the limits of a profile.
    pub(super) fn parse_within(message: ShellRequest, limits: CommandLimits) -> Result<Self, Malformed> {
        let ShellRequest { script, cwd, env, stdin, timeout_ms, stdin_file } = message;
        text("shell.script", &script, 1, limits.script_bytes)?;
        if script.trim().is_empty() {
            return Err(Malformed::new("shell.script", "is blank"));
        }
        check_env("shell.env", &env)?;
        check_stdin("shell.stdin", &stdin, limits)?;
        let stdin_file = check_stdin_file("shell", &stdin, &stdin_file)?;
        Ok(Self {
            timeout: timeout("shell.timeout_ms", timeout_ms, limits)?,
            cwd: path_or_root("shell.cwd", &cwd)?,
            script,
            env,
            stdin,
            stdin_file,
        })
    }
}

impl Request for Shell {
    type Message = ShellRequest;

    fn parse(message: ShellRequest, limits: CommandLimits) -> Result<Self, Malformed> {
        Self::parse_within(message, limits)
    }

    fn message(&self) -> ShellRequest {
        ShellRequest {
            script: self.script.clone(),
            cwd: self.cwd.to_string(),
            env: self.env.clone(),
            stdin: self.stdin.clone(),
            stdin_file: self.stdin_file.as_ref().map(ToString::to_string).unwrap_or_default(),
            timeout_ms: Some(milliseconds(self.timeout)),
        }
    }

    fn sketch(message: &ShellRequest) -> Sketch {
        (CLASS.name, json!({ "script": message.script, "cwd": message.cwd }))
    }
}

impl Describe for Shell {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        [&self.cwd].into_iter().chain(&self.stdin_file).collect()
    }

    fn cwd(&self) -> Option<&SandboxPath> {
        Some(&self.cwd)
    }

    fn input_file(&self) -> Option<&SandboxPath> {
        self.stdin_file.as_ref()
    }

    fn command_timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn timeout_mut(&mut self) -> Option<&mut Duration> {
        Some(&mut self.timeout)
    }

    fn ended(&self, result: ExecResult) -> Option<OpResult> {
        Some(OpResult::Shell(result))
    }

    fn process(&self) -> ProcessRequest {
        let ShellRequest { script, cwd, .. } = self.message();
        ProcessRequest { script, cwd, ..ProcessRequest::default() }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let Self { script, cwd, env, stdin, stdin_file, timeout } = self;
        let script = Part::Text("script", script.as_bytes());
        [script].into_iter().chain(surroundings(cwd, env, (stdin, stdin_file.as_ref()), *timeout)).collect()
    }
}
