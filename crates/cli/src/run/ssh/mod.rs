//! `coffer run ssh` and `coffer run ssh-config`: the host's OpenSSH client, and the image's server.
//!
//! ```text
//!  ssh ─► coffer run forward RUN PORT:- ─► cofferd ─► 127.0.0.1:PORT in the run: sshd, a process of the run
//! ```
//!
//! The daemon has nothing for it: the server is a process, and the way to it is a forwarded port, with the policy and the record of both.

mod client;
mod server;

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;

use super::RunRef;
use crate::client::Context;
use crate::failure::{Ended, Failure};

use client::Identity;

/// Open an SSH session in a run.
///
/// The first use starts the image's sshd in the run, as a process that `coffer process list` shows. It accepts a key that is made for
/// this run and user, and no password, and it ends with the run. The policy has to allow the process (a script) and `forward`. The
/// image needs OpenSSH's server and an account for the run's user; this host needs OpenSSH's client.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer run ssh 3f2a9c01 -- git status")]
pub(crate) struct Ssh {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
    /// Options of ssh, or a command. Default: a shell.
    #[arg(value_name = "ARGUMENT", last = true)]
    arguments: Vec<String>,
}

/// Print the configuration with which ssh, scp, rsync and editors reach a run.
///
/// It starts the same server as `coffer run ssh`. Save the output, and name the file with `ssh -F` or in an `Include` of ~/.ssh/config.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer run ssh-config 3f2a9c01 >run.ssh && scp -F run.ssh a.txt coffer-3f2a9c01:"
)]
pub(crate) struct SshConfig {
    /// The run: its id, a unique beginning or end of it, or `-` for $COFFERDAM_RUN.
    #[arg(value_name = "RUN")]
    run: RunRef,
}

impl Ssh {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (identity, _) = prepare(context, &self.run).await?;
        let mut ssh = Command::new("ssh");
        ssh.arg("-F").arg(identity.config_file()).arg(identity.alias()).args(self.arguments);
        Err(Failure::failed(format!("ssh cannot be started: {}", ssh.exec()))
            .with_hint("install OpenSSH's client"))
    }
}

impl SshConfig {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let (_, config) = prepare(context, &self.run).await?;
        let mut page = context.ui.page();
        page.block(&config);
        context.ui.show(&page)?;
        Ok(crate::exit::Exit::Ok)
    }
}

/// Finds or starts the server, and writes the configuration of the client. Returns the text of the latter, too.
async fn prepare(context: &Context, run: &RunRef) -> Result<(Identity, String), Failure> {
    let (client, run_id) = context.connect_to(run).await?;
    let identity = Identity::open(&run_id)?;
    let server = server::ensure(context.ui, &client, &run_id, &identity).await?;
    let config = identity.configure(context, &server)?;
    Ok((identity, config))
}
