//! The options that commands and scripts share: working directory, environment, input and time limit.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{CallOptions, stdin};
use crate::failure::Failure;
use crate::quantity::parse_pair;

#[derive(Args, Debug)]
pub(super) struct Surroundings {
    /// Working directory. Default: @project.
    #[arg(long, value_name = "DIR")]
    pub(super) cwd: Option<String>,
    /// An environment variable, if the profile allows its name; can be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    pub(super) env: Vec<(String, String)>,
    /// A file for its standard input, at most 32 MiB; `-` for coffer's own. Default: none.
    #[arg(long, value_name = "FILE")]
    stdin: Option<PathBuf>,
    /// A file of the run for its standard input, of any size, if the profile does not judge commands. Copy one in with `coffer cp`.
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with = "stdin",
        default_value = "",
        hide_default_value = true
    )]
    pub(super) stdin_file: String,
}

impl Surroundings {
    /// Reads the whole standard input for the command.
    pub(super) fn stdin(&self) -> Result<Vec<u8>, Failure> {
        Ok(self.stdin.as_deref().map(stdin::read).transpose()?.unwrap_or_default())
    }

    /// Returns true if the command gets `coffer`'s own standard input.
    pub(super) fn takes_stdin(&self) -> bool {
        self.stdin.as_deref() == Some(Path::new("-"))
    }
}

/// Returns the timeout from the options in the form of the operation.
pub(super) fn timeout_ms(options: &CallOptions) -> Option<u64> {
    options.timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
}
