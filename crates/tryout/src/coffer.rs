//! Calls of `coffer` as child processes, so that the demonstration shows what a person would type.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;

use crate::failure::Failure;

/// Longest time of one call. It is longer than the time for a decision.
const PATIENCE: Duration = Duration::from_secs(400);

/// Variables that would have `coffer` talk to another daemon or as another user.
const FOREIGN: [&str; 3] = ["COFFERDAM_TOKEN", "COFFERDAM_TLS", "COFFERDAM_RUN"];

/// This program, with the endpoint of one daemon.
pub(crate) struct Coffer {
    program: PathBuf,
    endpoint: String,
}

/// End of a call.
pub(crate) struct Ended {
    /// Exit code, or `None` after a signal.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Coffer {
    /// Returns this program as a client of the daemon in a directory.
    pub(crate) fn of(directory: &Path) -> Result<Self, Failure> {
        Ok(Self { program: this_program()?, endpoint: endpoint(directory) })
    }

    /// Runs a command line to its end. A dropped future kills it.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Result<Ended, Failure> {
        let mut command = Command::new(&self.program);
        for variable in FOREIGN {
            command.env_remove(variable);
        }
        command
            .env("COFFERDAM_ENDPOINT", &self.endpoint)
            .args(arguments)
            .stdin(Stdio::null())
            // Ctrl-C reaches this process alone, which ends the others in order.
            .process_group(0)
            .kill_on_drop(true);
        let what = || format!("coffer {}", arguments.join(" "));
        let ended = tokio::time::timeout(PATIENCE, command.output()).await;
        let Output { status, stdout, stderr } = ended
            .map_err(|_| Failure::failed(format!("`{}` does not end", what()), ""))?
            .map_err(|error| Failure::failed(format!("`{}` cannot be started: {error}", what()), ""))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Ended { code: status.code(), out: text(stdout), err: text(stderr) })
    }
}

/// Returns the path of this program.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::failed(format!("the path of this program is unknown: {error}"), ""))
}

/// Returns the endpoint of the daemon in a directory.
pub(crate) fn endpoint(directory: &Path) -> String {
    format!("unix:{}/{}", directory.display(), crate::config::SOCKET)
}
