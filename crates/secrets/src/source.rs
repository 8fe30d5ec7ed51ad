//! The places that secrets come from.

use std::path::PathBuf;
use std::time::Duration;

/// Place that a secret comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file that only its owner can read.
    File(PathBuf),
    /// A variable of the daemon's environment.
    Env(String),
    /// A file in `$CREDENTIALS_DIRECTORY`, systemd.exec(5).
    Credential(String),
    /// The output of a program.
    Command {
        /// The absolute path of the program, and its arguments.
        argv: Vec<String>,
        /// Time after which its processes are killed.
        timeout: Duration,
        /// Time for which its output counts.
        refresh: Duration,
    },
}
