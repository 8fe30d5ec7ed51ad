//! `exec`: one command, without a shell.

use std::collections::BTreeMap;
use std::time::Duration;

use jail::SandboxPath;
use wire::v1::ExecRequest;

use super::check::{path_or_root, text};
use super::{Describe, Lane, Request, Sketch, Texts};
use crate::Malformed;

const MAX_COMMAND: usize = 4_096;
const MAX_ARGS: usize = 4_096;
const MAX_ARGV_BYTES: usize = 128 * 1024;
const MAX_VARIABLES: usize = 256;
const MAX_VARIABLE_NAME: usize = 256;
const MAX_VARIABLE: usize = 32 * 1024;
const MAX_STDIN: usize = 1024 * 1024;
/// Where neither the call nor its profile says.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(120);

/// Run one command: argv, never a shell string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// A bare name to be looked up in PATH, or an absolute path. No NUL, not empty.
    pub command: String,
    /// Arguments without NUL; at most 4,096 of them and 128 KiB together.
    pub args: Vec<String>,
    /// Working directory.
    pub cwd: SandboxPath,
    /// Additional environment: names of `[A-Za-z_][A-Za-z0-9_]*`, values without NUL.
    pub env: BTreeMap<String, String>,
    /// Standard input, at most 1 MiB.
    pub stdin: Vec<u8>,
    /// Until everything of it is ended. More than zero, at most 120 s.
    pub timeout: Duration,
    /// Refuse it unless policy knows that it only reads, inside the mounts.
    pub only_reads: bool,
}

impl Request for Exec {
    type Message = ExecRequest;

    fn parse(message: ExecRequest) -> Result<Self, Malformed> {
        let ExecRequest { command, args, cwd, env, stdin, timeout_ms, only_reads } = message;
        text("exec.command", &command, 1, MAX_COMMAND)?;
        if command.contains('/') && !command.starts_with('/') {
            return Err(Malformed::new(
                "exec.command",
                "is a bare name such as `cargo` or an absolute path in the container",
            ));
        }
        check_args(&args)?;
        check_env("exec.env", &env)?;
        check_stdin("exec.stdin", &stdin)?;
        Ok(Self {
            command,
            args,
            cwd: path_or_root("exec.cwd", &cwd)?,
            env,
            stdin,
            timeout: timeout("exec.timeout_ms", timeout_ms)?,
            only_reads,
        })
    }

    fn message(&self) -> ExecRequest {
        ExecRequest {
            command: self.command.clone(),
            args: self.args.clone(),
            cwd: self.cwd.to_string(),
            env: self.env.clone(),
            stdin: self.stdin.clone(),
            timeout_ms: Some(milliseconds(self.timeout)),
            only_reads: self.only_reads,
        }
    }

    fn sketch(message: &ExecRequest) -> Sketch<'_> {
        let ExecRequest { command, args, cwd, .. } = message;
        Sketch(
            "exec",
            vec![("command", Texts::One(command)), ("args", Texts::Many(args)), ("cwd", Texts::One(cwd))],
        )
    }
}

fn check_args(args: &[String]) -> Result<(), Malformed> {
    if args.len() > MAX_ARGS || args.iter().map(String::len).sum::<usize>() > MAX_ARGV_BYTES {
        return Err(Malformed::new(
            "exec.args",
            format!("are more than {MAX_ARGS} or longer than {MAX_ARGV_BYTES} bytes together"),
        ));
    }
    if args.iter().any(|arg| arg.contains('\0')) {
        return Err(Malformed::new("exec.args", "contain a NUL byte"));
    }
    Ok(())
}

pub(super) fn check_env(field: &str, env: &BTreeMap<String, String>) -> Result<(), Malformed> {
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if env.len() > MAX_VARIABLES || bytes > MAX_ARGV_BYTES {
        let message =
            format!("has more than {MAX_VARIABLES} variables, or more than {MAX_ARGV_BYTES} bytes of them");
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

pub(super) fn check_stdin(field: &str, stdin: &[u8]) -> Result<(), Malformed> {
    if stdin.len() > MAX_STDIN {
        return Err(Malformed::new(field, format!("is longer than {MAX_STDIN} bytes")));
    }
    Ok(())
}

pub(super) fn timeout(field: &str, timeout_ms: Option<u64>) -> Result<Duration, Malformed> {
    let timeout = timeout_ms.map_or(DEFAULT_TIMEOUT, Duration::from_millis);
    if timeout.is_zero() || timeout > MAX_TIMEOUT {
        return Err(Malformed::new(field, "must be from 1 to 120000"));
    }
    Ok(timeout)
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
    fn kind(&self) -> &'static str {
        "exec"
    }

    fn lane(&self) -> Lane {
        Lane::Container
    }

    fn has_effect(&self) -> bool {
        true
    }

    fn paths(&self) -> Vec<&SandboxPath> {
        vec![&self.cwd]
    }

    fn timeout(&self) -> Option<Duration> {
        Some(self.timeout)
    }
}
