//! Configuration: YAML → raw structs → a validated [`Config`]. Only the last travels.
//!
//! Every problem is reported at once, with its key. A missing security setting means the strict value.

mod parse;
mod raw;
mod validate;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::rpc::Roles;

pub(crate) use parse::load;

/// What is in force.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Path of the Unix socket.
    pub(crate) socket: PathBuf,
    /// Its mode.
    pub(crate) socket_mode: u32,
    /// Everything that the daemon keeps.
    pub(crate) state_dir: PathBuf,
    /// Workspaces must lie beneath one of these.
    pub(crate) workspace_roots: Vec<PathBuf>,
    /// Directory of the policy; `None`: the built-in one.
    pub(crate) policy_dir: Option<PathBuf>,
    /// `unix:///…`
    pub(crate) docker_endpoint: String,
    /// Refuse to start on an engine with known escapes.
    pub(crate) strict_engine: bool,
    /// Until an approval expires; `None`: as the profile says.
    pub(crate) approval_timeout: Option<Duration>,
    /// The principal that made a call may approve it.
    pub(crate) allow_self_approval: bool,
    /// API roles of other uids than root's and the daemon's own.
    pub(crate) access: Vec<(u32, Roles)>,
    /// Runs that live at the same time.
    pub(crate) max_runs: usize,
    /// Calls of one run that are executed at the same time.
    pub(crate) calls_per_run: usize,
    /// Connections at the same time.
    pub(crate) max_connections: usize,
    /// Filter of the log.
    pub(crate) log_level: String,
    /// The log is JSON Lines instead of text.
    pub(crate) log_json: bool,
}

/// Everything that is wrong with a configuration.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problems(pub(crate) Vec<Problem>);

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Path of the key, such as `listen.unix.mode`; empty for the file itself.
    pub(crate) key: String,
    /// What is wrong and what would be right.
    pub(crate) message: String,
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        writeln!(f, "{count} problem{} in the configuration:", if count == 1 { "" } else { "s" })?;
        for problem in &self.0 {
            if problem.key.is_empty() {
                writeln!(f, "  {}", problem.message)?;
            } else {
                writeln!(f, "  {}: {}", problem.key, problem.message)?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// `--print-config`: what is in force, as YAML. There are no secrets in it so far.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "listen:\n  unix: {{ path: {:?}, mode: \"{:04o}\" }}", self.socket, self.socket_mode)?;
        writeln!(f, "state_dir: {:?}", self.state_dir)?;
        writeln!(f, "workspace_roots: {:?}", self.workspace_roots)?;
        match &self.policy_dir {
            Some(directory) => writeln!(f, "policy_dir: {directory:?}")?,
            None => writeln!(f, "# policy_dir: the built-in policy")?,
        }
        writeln!(f, "docker: {{ endpoint: {:?}, strict_engine: {} }}", self.docker_endpoint, self.strict_engine)?;
        let timeout = self.approval_timeout.map(|timeout| format!("timeout: {}s, ", timeout.as_secs()));
        let timeout = timeout.unwrap_or_default();
        writeln!(f, "approvals: {{ {timeout}allow_self_approval: {} }}", self.allow_self_approval)?;
        writeln!(f, "access:{}", if self.access.is_empty() { " []" } else { "" })?;
        for (uid, roles) in &self.access {
            writeln!(f, "  - {{ uid: {uid}, roles: {roles} }}")?;
        }
        writeln!(
            f,
            "limits: {{ runs: {}, calls_per_run: {}, connections: {} }}",
            self.max_runs, self.calls_per_run, self.max_connections
        )?;
        writeln!(
            f,
            "log: {{ level: {:?}, format: {} }}",
            self.log_level,
            if self.log_json { "json" } else { "text" }
        )
    }
}
