//! `coffer upgrade`: another program becomes the daemon of this host, while runs and their processes live on.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::exit::Exit;
use crate::failure::{Ended, Failure};

/// Have another program become the daemon of this host, while runs and their processes live on.
///
/// The daemon starts the program, which takes its sockets, examines each run and serves. If it fails at any step, the daemon goes
/// on as before. For root, or the user of the daemon. The exit code is 5 if only a restart can change the program.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer upgrade --check --binary ./cofferd && coffer upgrade --binary ./cofferd"
)]
pub(crate) struct Upgrade {
    /// Only say what would not survive. Changes nothing.
    #[arg(long)]
    check: bool,
    /// The program. Default: the cofferd beside this program.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// The configuration of the daemon. Default: COFFERDAM_CONFIG, or /etc/cofferdam/cofferd.yaml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Upgrade {
    pub(crate) fn run(self) -> Ended {
        let program = match self.binary {
            // A name without a directory would be looked up in PATH.
            Some(binary) => std::path::absolute(binary)?,
            None => std::env::current_exe()?.with_file_name("cofferd"),
        };
        let mut command = Command::new(&program);
        command.arg(if self.check { "--check-upgrade" } else { "--upgrade" });
        if let Some(config) = self.config {
            command.arg("--config").arg(config);
        }
        let shown = program.display();
        let status = command
            .status()
            .map_err(|error| Failure::failed(format!("{shown} cannot be executed: {error}")))?;
        match status.code() {
            Some(0) => Ok(Exit::Ok),
            // It has said why.
            Some(1) => Ok(Exit::Failed),
            Some(2) => Err(Failure::failed(format!(
                "{shown} cannot take over: it is no cofferd of this version or later"
            ))),
            Some(5) => Ok(Exit::Unreachable),
            _ => Err(Failure::failed(format!("{shown} ended: {status}"))),
        }
    }
}
