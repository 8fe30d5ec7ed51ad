//! `coffer tls client`.

use std::path::PathBuf;

use certificates::{DAYS, Directory};
use clap::Args;

use crate::client::Context;
use crate::failure::Ended;

/// Make a client's certificate, or renew it. Prints the directory to give to the client.
///
/// The daemon knows the client as `cert:NAME`, and gives it the roles that `access` in its configuration lists for
/// `certificate: NAME`.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer tls client /etc/cofferdam/tls ci")]
pub(crate) struct Client {
    /// The directory that `coffer tls init` made.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The client's name.
    #[arg(value_name = "NAME", value_parser = certificates::client_name)]
    name: String,
    /// Days that the certificate lasts, but not longer than its authority.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
}

impl Client {
    #[allow(clippy::unused_async)] // like every other verb
    pub(super) async fn run(self, context: &Context) -> Ended {
        let directory = Directory::open(&self.directory)?;
        directory.issue_client(&self.name, self.days)?;
        context.ui.answer(directory.client(&self.name), |path, page| {
            page.block(&path.display().to_string()).end_line();
        })
    }
}
