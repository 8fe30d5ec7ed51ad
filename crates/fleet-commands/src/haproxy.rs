//! `coffer fleet haproxy`.

use std::path::PathBuf;

use clap::Args;
use command_context::client::Context;
use presentation::exit::Exit;
use presentation::failure::Ended;

use crate::nodes::{Balancer, Nodes};
use crate::write::replace;

/// Write the configuration of HAProxy that makes one address of the nodes. For version 2.6 or later.
///
/// HAProxy reads a private key beside its certificate: make a link `cert.pem.key` to `key.pem` in both directories. After a
/// change, `systemctl reload haproxy` takes the new file, and no stream ends.
#[derive(Args, Debug)]
#[command(
    before_help = "Example: coffer fleet haproxy --nodes nodes.yaml --listen-tls /etc/haproxy/tls --node-tls /etc/haproxy/node-tls --out /etc/haproxy/fleet.cfg"
)]
pub struct Haproxy {
    #[command(flatten)]
    nodes: Nodes,
    #[command(flatten)]
    balancer: Balancer,
    /// With --dns: port on which the nodes answer agent checks. Default: they are not asked.
    #[arg(long, value_name = "PORT", requires = "dns", value_parser = clap::value_parser!(u16).range(1..))]
    agent_port: Option<u16>,
    /// File that is replaced. Default: the text is printed.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Haproxy {
    pub(crate) fn run(self, context: &Context) -> Ended {
        let fleet = self.nodes.read(self.agent_port)?;
        let text = fleet_config::haproxy(&fleet, &self.balancer.front());
        if let Some(out) = &self.out {
            replace(out, &text)?;
        } else {
            let mut page = context.ui.page();
            page.raw(&text);
            context.ui.show(&page)?;
        }
        Ok(Exit::Ok)
    }
}
