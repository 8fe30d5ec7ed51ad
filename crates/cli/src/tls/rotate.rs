//! `coffer tls rotate`.

use std::path::PathBuf;

use certificates::{DAYS, Directory};
use clap::Args;

use crate::client::Context;
use crate::failure::Ended;

/// Renew the daemon's certificate and those of all clients, with new keys. Prints the directories that are new.
///
/// The daemon takes its new certificate within seconds, or at once on SIGHUP, and no connection ends for it. Clients'
/// old certificates count until they expire.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer tls rotate /etc/cofferdam/tls")]
pub(crate) struct Rotate {
    /// The directory that `coffer tls init` made.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Days that the new certificates last, but not longer than their authority.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
}

impl Rotate {
    #[allow(clippy::unused_async)] // like every other verb
    pub(super) async fn run(self, context: &Context) -> Ended {
        let directory = Directory::open(&self.directory)?;
        directory.issue_server(&directory.hosts()?, self.days)?;
        let mut renewed = vec![directory.server()];
        for name in directory.clients()? {
            directory.issue_client(&name, self.days)?;
            renewed.push(directory.client(&name));
        }
        context.ui.answer(renewed, |renewed, page| {
            for path in renewed {
                page.block(&path.display().to_string()).end_line();
            }
        })
    }
}
