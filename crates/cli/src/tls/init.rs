//! `coffer tls init`.

use std::path::PathBuf;

use certificates::{DAYS, Directory};
use clap::Args;
use serde::Serialize;

use crate::client::Context;
use crate::failure::Ended;

/// Make an authority, a certificate for the daemon and one for each client, in a new directory.
///
/// Give each client its own directory beneath DIR/clients; it uses that with --tls. Keep DIR/ca away from the
/// daemon's host. Prints what the daemon's configuration needs.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer tls init /etc/cofferdam/tls --host cofferd.example.org --client ci")]
pub(crate) struct Init {
    /// The directory, which must be new or empty.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// A name or address under which clients reach the daemon. Repeatable. Default: localhost, 127.0.0.1 and ::1.
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    /// A client to make a certificate for. Repeatable.
    #[arg(long = "client", value_name = "NAME", value_parser = certificates::client_name)]
    clients: Vec<String>,
    /// Days that the certificates last, but not longer than their authority.
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=3_650))]
    days: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    server: PathBuf,
    clients: Vec<PathBuf>,
}

impl Init {
    #[allow(clippy::unused_async)] // like every other verb
    pub(super) async fn run(self, context: &Context) -> Ended {
        let mut hosts = self.hosts;
        if hosts.is_empty() {
            hosts = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
        }
        let directory = Directory::make(&self.directory)?;
        directory.issue_server(&hosts, self.days)?;
        for name in &self.clients {
            directory.issue_client(name, self.days)?;
        }
        let clients = self.clients.iter().map(|name| directory.client(name)).collect();
        context.ui.answer_and_talk(Made { server: directory.server(), clients }, |made, page, talk| {
            let at = made.server.display();
            page.block(&format!(
                "listen:\n  tcp:\n    address: \"0.0.0.0:7443\"\n    tls: {{ certificate: {at}/cert.pem, key: {at}/key.pem, client_ca: {at}/ca.pem }}"
            ))
            .end_line();
            for client in made.clients {
                talk.block(&format!("for a client: {}", client.display())).end_line();
            }
        })
    }
}
