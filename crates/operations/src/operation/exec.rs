//! `exec`: one command, without a shell.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jail::{Mount, RelPath, SandboxPath};
use serde_json::{Value, json};
use wire::v1::{ExecRequest, ExecResult, ProcessRequest};

use super::check::{path_or_root, required_path, text};
use super::record::preview;
use super::{Answer, Class, Describe, Effect, Lane, Part, Request, Sketch};
use crate::{CommandLimits, Limit, Malformed, OpResult};

pub(super) const CLASS: Class = Class { name: "exec", lane: Lane::Container, effect: Effect::Runs };

const MAX_COMMAND: usize = 4_096;
const MAX_ENV_BYTES: usize = 128 * 1024;
const MAX_VARIABLES: usize = 256;
const MAX_VARIABLE_NAME: usize = 256;
const MAX_VARIABLE: usize = 32 * 1024;

/// Run one command: argv, never a shell string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// Name to look up in PATH, or a path: absolute, relative to `cwd`, or in alias form. No NUL, not empty.
    pub command: String,
    /// Arguments without NUL, within [`CommandLimits`].
    pub args: Vec<String>,
    /// Working directory.
    pub cwd: SandboxPath,
    /// Additional environment: names of `[A-Za-z_][A-Za-z0-9_]*`, values without NUL.
    pub env: BTreeMap<String, String>,
    /// Standard input, within [`CommandLimits`].
    pub stdin: Vec<u8>,
    /// A file whose content is the standard input in place of `stdin`.
    pub stdin_file: Option<SandboxPath>,
    /// Time until all of its processes are ended. More than zero, at most [`CommandLimits::LONGEST_TIMEOUT`].
    pub timeout: Duration,
    /// Refuse the command unless policy can tell that it only reads, inside the mounts.
    pub only_reads: bool,
}

impl Exec {
    /// Creates a command in the project, with the default timeout.
    pub fn new<A: Into<String>>(command: impl Into<String>, args: impl IntoIterator<Item = A>) -> Self {
        Self {
            command: command.into(),
            args: args.into_iter().map(Into::into).collect(),
            cwd: SandboxPath::new(Mount::Project, RelPath::root()),
            env: BTreeMap::new(),
            stdin: Vec::new(),
            stdin_file: None,
            timeout: CommandLimits::DEFAULT_TIMEOUT,
            only_reads: false,
        }
    }

    /// Validates a request against the limits of a profile.
    pub fn parse_within(message: ExecRequest, limits: CommandLimits) -> Result<Self, Malformed> {
        let ExecRequest { command, args, cwd, env, stdin, timeout_ms, only_reads, stdin_file } = message;
        text("exec.command", &command, 1, MAX_COMMAND)?;
        check_args(&args, limits)?;
        check_env("exec.env", &env)?;
        check_stdin("exec.stdin", &stdin, limits)?;
        let stdin_file = check_stdin_file("exec", &stdin, &stdin_file)?;
        Ok(Self {
            command,
            args,
            cwd: path_or_root("exec.cwd", &cwd)?,
            env,
            stdin,
            stdin_file,
            timeout: timeout("exec.timeout_ms", timeout_ms, limits)?,
            only_reads,
        })
    }

    /// Returns the program as policy judges it: a bare name, or an absolute path in the container.
    ///
    /// `.` and `..` are resolved as text. The lane refuses a path that a link turns into another one.
    pub fn program(&self) -> Cow<'_, str> {
        if !self.command.contains('/') {
            return Cow::Borrowed(&self.command);
        }
        match self.alias() {
            Some(place) => Cow::Owned(place.container_path()),
            None if self.command.starts_with('/') => absolute("", &self.command),
            None => absolute(&self.cwd.container_path(), &self.command),
        }
    }

    /// Returns a program's path in alias form, such as `@project/run.sh`.
    pub fn alias(&self) -> Option<SandboxPath> {
        self.command.starts_with('@').then(|| SandboxPath::parse(&self.command).ok()).flatten()
    }
}

impl Request for Exec {
    type Message = ExecRequest;

    fn parse(message: ExecRequest, limits: CommandLimits) -> Result<Self, Malformed> {
        Self::parse_within(message, limits)
    }

    fn message(&self) -> ExecRequest {
        ExecRequest {
            command: self.command.clone(),
            args: self.args.clone(),
            cwd: self.cwd.to_string(),
            env: self.env.clone(),
            stdin: self.stdin.clone(),
            stdin_file: self.stdin_file.as_ref().map(ToString::to_string).unwrap_or_default(),
            timeout_ms: Some(milliseconds(self.timeout)),
            only_reads: self.only_reads,
        }
    }

    fn sketch(message: &ExecRequest) -> Sketch {
        (CLASS.name, json!({ "command": message.command, "args": message.args, "cwd": message.cwd }))
    }
}

/// Returns `path` beneath `directory` without empty parts, `.` and `..`.
fn absolute<'p>(directory: &str, path: &str) -> Cow<'p, str> {
    let mut names = Vec::new();
    for name in directory.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    Cow::Owned(format!("/{}", names.join("/")))
}

fn check_args(args: &[String], limits: CommandLimits) -> Result<(), Malformed> {
    let CommandLimits { args: most, argv_bytes, .. } = limits;
    if args.len() > most || args.iter().map(String::len).sum::<usize>() > argv_bytes {
        let message = format!("are more than {most} or longer than {argv_bytes} bytes together");
        return Err(Malformed::new("exec.args", message));
    }
    if args.iter().any(|arg| arg.contains('\0')) {
        return Err(Malformed::new("exec.args", "contain a NUL byte"));
    }
    Ok(())
}

pub(crate) fn check_env(field: &str, env: &BTreeMap<String, String>) -> Result<(), Malformed> {
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if env.len() > MAX_VARIABLES || bytes > MAX_ENV_BYTES {
        let message =
            format!("has more than {MAX_VARIABLES} variables, or more than {MAX_ENV_BYTES} bytes of them");
        return Err(Malformed::new(field, message));
    }
    for (name, value) in env {
        if !is_variable_name(name) {
            return Err(Malformed::new(field, "has a name that is not [A-Za-z_][A-Za-z0-9_]*"));
        }
        text(field, value, 0, MAX_VARIABLE)?;
    }
    Ok(())
}

pub(super) fn check_stdin(field: &str, stdin: &[u8], limits: CommandLimits) -> Result<(), Malformed> {
    let most = limits.stdin_bytes;
    if stdin.len() > most {
        return Err(Malformed::new(field, format!("is longer than {most} bytes")));
    }
    Ok(())
}

pub(super) fn check_stdin_file(
    kind: &str,
    stdin: &[u8],
    file: &str,
) -> Result<Option<SandboxPath>, Malformed> {
    if file.is_empty() {
        return Ok(None);
    }
    if !stdin.is_empty() {
        return Err(Malformed::new(kind, "has a standard input or a file for it, not both"));
    }
    required_path(&format!("{kind}.stdin_file"), file).map(Some)
}

pub(super) fn timeout(
    field: &str,
    timeout_ms: Option<u64>,
    limits: CommandLimits,
) -> Result<Duration, Malformed> {
    let timeout = timeout_ms.map_or(limits.default_timeout, Duration::from_millis);
    check_timeout(field, timeout, limits.longest_timeout.min(CommandLimits::LONGEST_TIMEOUT))?;
    Ok(timeout)
}

pub(super) fn check_timeout(field: &str, timeout: Duration, longest: Duration) -> Result<(), Malformed> {
    if timeout.is_zero() || timeout > longest {
        return Err(Malformed::new(field, format!("must be from 1 to {}", longest.as_millis())));
    }
    Ok(())
}

fn is_variable_name(name: &str) -> bool {
    name.len() <= MAX_VARIABLE_NAME
        && !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

pub(super) fn milliseconds(timeout: Duration) -> u64 {
    u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)
}

impl Describe for Exec {
    fn class(&self) -> Class {
        CLASS
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        [&self.cwd].into_iter().chain(&self.stdin_file).collect()
    }

    fn command(&self) -> Option<&Exec> {
        Some(self)
    }

    fn cwd(&self) -> Option<&SandboxPath> {
        Some(&self.cwd)
    }

    fn input_file(&self) -> Option<&SandboxPath> {
        self.stdin_file.as_ref()
    }

    /// Policy checks the file that a command reads as its input.
    fn sought(&self) -> (Vec<&SandboxPath>, Option<&str>) {
        (Vec::new(), None)
    }

    fn command_timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }

    fn timeout_mut(&mut self) -> Option<&mut Duration> {
        Some(&mut self.timeout)
    }

    fn ended(&self, result: ExecResult) -> Option<OpResult> {
        Some(OpResult::Exec(result))
    }

    fn process(&self) -> ProcessRequest {
        let ExecRequest { command, args, cwd, .. } = self.message();
        ProcessRequest { command, args, cwd, ..ProcessRequest::default() }
    }

    /// Leaves out `only_reads`, which is decided before a reviewer is asked.
    fn parts(&self) -> Vec<Part<'_>> {
        let Self { command, args, cwd, env, stdin, stdin_file, timeout, only_reads: _ } = self;
        let surroundings = surroundings(cwd, env, (stdin, stdin_file.as_ref()), *timeout);
        [Part::Argv(command, args)].into_iter().chain(surroundings).collect()
    }
}

pub(super) fn surroundings<'o>(
    cwd: &SandboxPath,
    env: &BTreeMap<String, String>,
    (stdin, stdin_file): (&'o [u8], Option<&SandboxPath>),
    timeout: Duration,
) -> Vec<Part<'o>> {
    let mut lines = vec![format!("cwd: {cwd}"), format!("timeout: {} s", timeout.as_secs_f64())];
    lines.extend(env.iter().map(|(name, value)| format!("env: {name}={value:?}")));
    lines.extend(stdin_file.map(|file| format!("stdin: {file}")));
    let stdin = (!stdin.is_empty()).then_some(Part::Text("stdin", stdin));
    lines.into_iter().map(Part::Line).chain(stdin).collect()
}

impl Answer for ExecResult {
    /// Workers report on commands in another message. This one is the answer to a preview, which runs nothing.
    fn check(&mut self) -> Result<(), Malformed> {
        if *self == Self::default() {
            Ok(())
        } else {
            Err(Malformed::new("exec", "is no answer to a preview"))
        }
    }

    fn facts(&self) -> Value {
        json!({
            "signal": self.signal, "timed_out": self.timed_out, "kill": self.kill,
            "limits_hit": self.limits_hit().filter_map(Limit::word).collect::<Vec<_>>(),
            "ended_by": self.ended_by().word(),
            "stdout_bytes": self.stdout_bytes, "stdout": preview(&self.stdout),
            "stderr_bytes": self.stderr_bytes, "stderr": preview(&self.stderr),
        })
    }
}
