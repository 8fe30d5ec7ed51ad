//! `process`: a command or a script that keeps running after its call.

use std::collections::BTreeMap;
use std::time::Duration;

use jail::SandboxPath;
use serde_json::{Value, json};
use wire::v1::{self, ExecRequest, ProcessRequest, ShellRequest};

use super::check::path_or_root;
use super::exec::{check_env, milliseconds};
use super::{Answer, Class, Delivery, Describe, Effect, Exec, Lane, Part, Request, Shell, Sketch};
use crate::{CommandLimits, Malformed, ProcessResult};

pub(super) const CLASS: Class = Class { name: "process", lane: Lane::Container, effect: Effect::Runs };

/// Longest timeout of a process, if it has one.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);
/// Most rows and most columns.
const MAX_SIDE: u32 = 10_000;
const MAX_TAG: usize = 64;
/// Size of a session's terminal if the request gives none.
const SESSION_SIZE: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// Start a process that keeps running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub program: ProcessProgram,
    /// Its standard input stays open.
    pub stdin: bool,
    /// It gets a terminal of this size instead of pipes.
    pub terminal: Option<TerminalSize>,
    /// A name that the client chooses: at most 64 of `A-Z a-z 0-9 . _ -`.
    pub tag: String,
    /// Time until all of its processes are ended; `None`: until its run ends. More than zero, at most a day.
    pub timeout: Option<Duration>,
}

/// Program of a process. Its timeout and its standard input are ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessProgram {
    Command(Exec),
    Script(Shell),
    /// A shell that receives its commands later, through [`super::Session`].
    Session {
        cwd: SandboxPath,
        env: BTreeMap<String, String>,
    },
}

/// Size of a terminal in characters, 1 to 10,000 each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub rows: u16,
    pub columns: u16,
}

impl TerminalSize {
    pub fn parse(field: &str, size: v1::TerminalSize) -> Result<Self, Malformed> {
        let within = |side: u32| u16::try_from(side).ok().filter(|_| (1..=MAX_SIDE).contains(&side));
        let sides = within(size.rows).zip(within(size.columns));
        let malformed = || Malformed::new(field, "rows and columns must be from 1 to 10000");
        sides.map(|(rows, columns)| Self { rows, columns }).ok_or_else(malformed)
    }

    fn message(self) -> v1::TerminalSize {
        v1::TerminalSize { rows: self.rows.into(), columns: self.columns.into() }
    }
}

impl Process {
    /// Validates a request against the limits of a profile.
    pub fn parse_within(message: ProcessRequest, limits: CommandLimits) -> Result<Self, Malformed> {
        let ProcessRequest { command, args, script, cwd, env, stdin, terminal, tag, timeout_ms, session } =
            message;
        let program = match (command.is_empty(), script.is_empty()) {
            (true, true) if session && args.is_empty() => {
                check_env("process.env", &env)?;
                ProcessProgram::Session { cwd: path_or_root("process.cwd", &cwd)?, env }
            }
            (false, true) if !session => {
                let exec = ExecRequest { command, args, cwd, env, ..Default::default() };
                let exec = Exec::parse_within(exec, limits).map_err(of_process)?;
                ProcessProgram::Command(Exec { timeout: CommandLimits::LONGEST_TIMEOUT, ..exec })
            }
            (true, false) if args.is_empty() && !session => {
                let shell = ShellRequest { script, cwd, env, ..Default::default() };
                let shell = Shell::parse_within(shell, limits).map_err(of_process)?;
                ProcessProgram::Script(Shell { timeout: CommandLimits::LONGEST_TIMEOUT, ..shell })
            }
            (true, false) if !session => {
                return Err(Malformed::new("process.args", "are for a command, not for a script"));
            }
            _ => {
                return Err(Malformed::new(
                    "process.command",
                    "set exactly one of command, script and session",
                ));
            }
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if tag.len() > MAX_TAG || !tag.bytes().all(plain) {
            return Err(Malformed::new("process.tag", "must be at most 64 characters of [A-Za-z0-9._-]"));
        }
        let timeout = timeout_ms.map(Duration::from_millis);
        if timeout.is_some_and(|timeout| timeout.is_zero() || timeout > LONGEST) {
            return Err(Malformed::new("process.timeout_ms", "must be from 1 to 86400000"));
        }
        let size = |size| TerminalSize::parse("process.terminal", size);
        let terminal = terminal.map(size).transpose()?.or(session.then_some(SESSION_SIZE));
        Ok(Self { program, stdin, terminal, tag, timeout })
    }
}

impl Request for Process {
    type Message = ProcessRequest;

    fn parse(message: ProcessRequest, limits: CommandLimits) -> Result<Self, Malformed> {
        Self::parse_within(message, limits)
    }

    fn message(&self) -> ProcessRequest {
        let program = match &self.program {
            ProcessProgram::Command(exec) => {
                let ExecRequest { command, args, cwd, env, .. } = exec.message();
                ProcessRequest { command, args, cwd, env, ..Default::default() }
            }
            ProcessProgram::Script(shell) => {
                let ShellRequest { script, cwd, env, .. } = shell.message();
                ProcessRequest { script, cwd, env, ..Default::default() }
            }
            ProcessProgram::Session { cwd, env } => {
                ProcessRequest { session: true, cwd: cwd.to_string(), env: env.clone(), ..Default::default() }
            }
        };
        ProcessRequest {
            stdin: self.stdin,
            terminal: self.terminal.map(TerminalSize::message),
            tag: self.tag.clone(),
            timeout_ms: self.timeout.map(milliseconds),
            ..program
        }
    }

    fn sketch(message: &ProcessRequest) -> Sketch {
        let ProcessRequest { command, args, script, cwd, tag, session, .. } = message;
        let asked = json!({
            "command": command, "args": args, "script": script, "cwd": cwd, "tag": tag, "session": session
        });
        (CLASS.name, asked)
    }
}

/// Renames the field of an error to the process's field.
fn of_process(malformed: Malformed) -> Malformed {
    let field = malformed.field.rsplit('.').next().unwrap_or_default();
    Malformed { field: format!("process.{field}"), ..malformed }
}

impl Process {
    /// Returns the canonical message.
    pub fn request(&self) -> ProcessRequest {
        self.message()
    }

    /// Returns true if the process accepts input after its start.
    pub fn takes_input(&self) -> bool {
        self.stdin || self.terminal.is_some()
    }

    pub fn cwd(&self) -> &SandboxPath {
        match &self.program {
            ProcessProgram::Command(exec) => &exec.cwd,
            ProcessProgram::Script(shell) => &shell.cwd,
            ProcessProgram::Session { cwd, .. } => cwd,
        }
    }

    pub fn env(&self) -> &BTreeMap<String, String> {
        match &self.program {
            ProcessProgram::Command(exec) => &exec.env,
            ProcessProgram::Script(shell) => &shell.env,
            ProcessProgram::Session { env, .. } => env,
        }
    }
}

impl Describe for Process {
    fn class(&self) -> Class {
        CLASS
    }

    fn delivery(&self) -> Delivery {
        Delivery::Process
    }

    fn cwd(&self) -> Option<&SandboxPath> {
        Some(self.cwd())
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![self.cwd()]
    }

    /// Policy checks the file that the process reads as its input.
    fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        (Vec::new(), None)
    }

    fn parts(&self) -> Vec<Part<'_>> {
        let mut lines = vec![format!("cwd: {}", self.cwd())];
        lines.push(match self.timeout {
            Some(timeout) => format!("stays: {} s at most", timeout.as_secs_f64()),
            None => "stays: until its run ends".to_owned(),
        });
        if let Some(TerminalSize { rows, columns }) = self.terminal {
            lines.push(format!("terminal: {rows} rows, {columns} columns"));
        }
        if self.takes_input() {
            lines.push("stdin: open; no reviewer is asked about its input".to_owned());
        }
        lines.extend(self.env().iter().map(|(name, value)| format!("env: {name}={value:?}")));
        let program = match &self.program {
            ProcessProgram::Command(exec) => Part::Argv(&exec.command, &exec.args),
            ProcessProgram::Script(shell) => Part::Text("script", shell.script.as_bytes()),
            ProcessProgram::Session { .. } => {
                Part::Line("a session: a shell that is given commands".to_owned())
            }
        };
        [program].into_iter().chain(lines.into_iter().map(Part::Line)).collect()
    }
}

impl Answer for ProcessResult {
    fn facts(&self) -> Value {
        json!({ "process_id": self.process_id })
    }
}
