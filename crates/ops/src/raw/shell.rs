//! Requests to run a shell script.

use std::collections::BTreeMap;

use super::Malformed;
use super::check::{path_or_root, text};
use super::exec::{check_env, check_stdin, timeout};
use crate::Operation;

const MAX_SCRIPT: usize = 64 * 1024;

/// Becomes [`crate::Shell`].
#[derive(Debug, Clone, Default)]
pub struct Shell {
    /// Required, not blank.
    pub script: String,
    /// Default `@project`.
    pub cwd: String,
    /// At most 256 variables.
    pub env: BTreeMap<String, String>,
    /// At most 1 MiB.
    pub stdin: Vec<u8>,
    /// At most 120,000; 30,000 where neither the call nor its profile says.
    pub timeout_ms: Option<u64>,
}

impl Shell {
    /// Validates.
    pub fn into_operation(self) -> Result<Operation, Malformed> {
        text("shell.script", &self.script, 1, MAX_SCRIPT)?;
        if self.script.trim().is_empty() {
            return Err(Malformed::new("shell.script", "is blank"));
        }
        check_env("shell.env", &self.env)?;
        check_stdin("shell.stdin", &self.stdin)?;
        Ok(Operation::Shell(crate::Shell {
            timeout: timeout("shell.timeout_ms", self.timeout_ms)?,
            cwd: path_or_root("shell.cwd", &self.cwd)?,
            script: self.script,
            env: self.env,
            stdin: self.stdin,
        }))
    }
}
