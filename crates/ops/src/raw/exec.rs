//! Requests to run a command.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Malformed;
use super::check::{path_or_root, text};
use crate::Operation;

const MAX_COMMAND: usize = 4_096;
const MAX_ARGS: usize = 4_096;
const MAX_ARGV_BYTES: usize = 128 * 1024;
const MAX_VARIABLES: usize = 256;
const MAX_VARIABLE_NAME: usize = 256;
const MAX_VARIABLE: usize = 32 * 1024;
const MAX_STDIN: usize = 1024 * 1024;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_TIMEOUT: Duration = Duration::from_secs(120);

/// Becomes [`crate::Exec`].
#[derive(Debug, Clone, Default)]
pub struct Exec {
    /// Required.
    pub command: String,
    /// At most 4,096 and 128 KiB together.
    pub args: Vec<String>,
    /// Default `@project`.
    pub cwd: String,
    /// At most 256 variables.
    pub env: BTreeMap<String, String>,
    /// At most 1 MiB.
    pub stdin: Vec<u8>,
    /// At most 120,000; 30,000 where neither the call nor its profile says.
    pub timeout_ms: Option<u64>,
    /// Refused unless it only reads.
    pub only_reads: bool,
}

impl Exec {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        text("exec.command", &self.command, 1, MAX_COMMAND)?;
        if self.command.contains('/') && !self.command.starts_with('/') {
            return Err(Malformed::new(
                "exec.command",
                "is a bare name such as `cargo` or an absolute path in the container",
            ));
        }
        check_args(&self.args)?;
        check_env("exec.env", &self.env)?;
        check_stdin("exec.stdin", &self.stdin)?;
        let timeout = timeout("exec.timeout_ms", self.timeout_ms)?;
        Ok(Operation::Exec(crate::Exec {
            command: self.command,
            args: self.args,
            cwd: path_or_root("exec.cwd", &self.cwd)?,
            env: self.env,
            stdin: self.stdin,
            timeout,
            only_reads: self.only_reads,
        }))
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
    if env.len() > MAX_VARIABLES {
        return Err(Malformed::new(field, format!("has more than {MAX_VARIABLES} variables")));
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
