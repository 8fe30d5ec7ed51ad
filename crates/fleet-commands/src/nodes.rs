//! Options that both commands have: the nodes, and the side of the balancer that clients see.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use document::MAX_FILE_BYTES;
use fleet_config::{Directory, DnsName, Fleet, Front, Ids, NodeNames};
use presentation::failure::Failure;

/// Nodes: a list, or names of DNS.
#[derive(Args, Debug)]
#[group(id = "source", required = true, multiple = false, args = ["nodes", "dns"])]
pub(crate) struct Nodes {
    /// YAML file with the list of nodes: `nodes: [{ id: 1, address: "node-1.example.org:7443", weight: 1 }]`.
    /// `server_name` is the name in the node's certificate, if `address` has none. `agent_check` is where the node
    /// answers agent checks.
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    /// DNS name that has the addresses of all nodes, which a balancer looks up again. HAProxy also follows SRV
    /// records, such as _cofferd._tcp.fleet.example.org. The certificate of each node must have the name, without
    /// labels that begin with an underscore.
    #[arg(long, value_name = "NAME", requires = "dns_node_template", requires = "ids")]
    dns: Option<DnsName>,
    /// DNS names of the nodes, such as node-{id}.fleet.example.org. The certificate of each node must have its own.
    #[arg(long, value_name = "TEMPLATE", requires = "dns")]
    dns_node_template: Option<NodeNames>,
    /// Numbers of the nodes that have such names, such as 1-16 or 1,2,7-9.
    #[arg(long, value_name = "IDS", requires = "dns")]
    ids: Option<Ids>,
    /// TCP port of the nodes. SRV records have their own.
    #[arg(long, value_name = "PORT", default_value_t = 7443, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
}

/// Addresses and certificates of the balancer.
#[derive(Args, Debug)]
pub(crate) struct Balancer {
    /// Address and port on which the balancer listens.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:7443")]
    listen: SocketAddr,
    /// Directory with the certificate that clients see: cert.pem, key.pem, and ca.pem, the authority of the clients.
    #[arg(long, value_name = "DIRECTORY")]
    listen_tls: Directory,
    /// Directory with the certificate that the nodes see: cert.pem, key.pem, and ca.pem, the authority of the nodes.
    /// Give this certificate no role: each client of the balancer would have it.
    #[arg(long, value_name = "DIRECTORY")]
    node_tls: Directory,
}

impl Balancer {
    pub(crate) fn front(self) -> Front {
        Front { listen: self.listen, tls: self.listen_tls, node_tls: self.node_tls }
    }
}

impl Nodes {
    /// Reads the nodes. `agent_port` is that of agent checks, if DNS names the nodes.
    pub(crate) fn read(self, agent_port: Option<u16>) -> Result<Fleet, Failure> {
        match (self.nodes, self.dns, self.dns_node_template, self.ids) {
            (Some(file), ..) => read(&file),
            (None, Some(name), Some(names), Some(ids)) => {
                Ok(Fleet::of_names(name, self.port, &names, &ids, agent_port))
            }
            _ => Err(Failure::usage("give --nodes, or --dns with --dns-node-template and --ids")),
        }
    }
}

fn read(file: &Path) -> Result<Fleet, Failure> {
    let shown = file.display().to_string();
    let mut text = String::new();
    let most = MAX_FILE_BYTES as u64;
    let opened = File::open(file).and_then(|opened| opened.take(most + 1).read_to_string(&mut text));
    opened.map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    if text.len() as u64 > most {
        return Err(Failure::usage(format!("{shown}: is larger than {most} bytes")));
    }
    Fleet::read(&shown, &text).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::usage(problems.join("\n"))
    })
}
