//! Options that both commands have: the nodes, and the side of the balancer that clients see.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use command_context::file;
use fleet_config::{Directory, DnsName, Fleet, Front, Ids, NodeNames};
use presentation::failure::Failure;

/// Nodes: a list, or names of DNS.
#[derive(Args, Debug)]
pub(crate) struct Nodes {
    /// YAML file with the list of nodes: `nodes: [{ id: 1, address: "node-1.example.org:7443", weight: 1 }]`.
    /// `server_name` is the name in the node's certificate, if `address` has none. `agent_check` is where the node
    /// answers agent checks.
    #[arg(long = "nodes", value_name = "FILE", required_unless_present = "dns")]
    file: Option<PathBuf>,
    /// DNS name that has the addresses of all nodes, which a balancer looks up again. HAProxy also follows SRV
    /// records, such as _cofferd._tcp.fleet.example.org. The certificate of each node must have the name, without
    /// labels that begin with an underscore.
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "file",
        requires = "dns_node_template",
        requires = "ids"
    )]
    dns: Option<DnsName>,
    /// DNS names of the nodes, such as node-{id}.fleet.example.org. The certificate of each node must have its own.
    #[arg(long, value_name = "TEMPLATE", requires = "dns")]
    dns_node_template: Option<NodeNames>,
    /// Numbers of the nodes that have such names, such as 1-16 or 1,2,7-9.
    #[arg(long, value_name = "IDS", requires = "dns")]
    ids: Option<Ids>,
    /// With --dns: TCP port of the nodes. SRV records have their own.
    #[arg(long, value_name = "PORT", default_value_t = 7443, requires = "dns", value_parser = clap::value_parser!(u16).range(1..))]
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
        match (self.file, self.dns, self.dns_node_template, self.ids) {
            (Some(file), ..) => read(&file),
            (None, Some(name), Some(names), Some(ids)) => {
                Ok(Fleet::of_names(name, self.port, &names, &ids, agent_port))
            }
            _ => Err(Failure::usage("give --nodes, or --dns with --dns-node-template and --ids")),
        }
    }
}

fn read(path: &Path) -> Result<Fleet, Failure> {
    let shown = path.display().to_string();
    let text = file::text(path).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    Fleet::read(&shown, &text).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::usage(problems.join("\n"))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use document::MAX_FILE_BYTES;
    use fleet_config::Pool;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        nodes: Nodes,
    }

    fn read(line: &str) -> Result<Fleet, String> {
        let words = ["x"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.nodes.read(Some(7445)).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn nodes_come_of_a_list_or_of_names() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("nodes.yaml");
        let list = format!("--nodes {}", file.display());
        assert!(read(&list).unwrap_err().contains("nodes.yaml"));
        std::fs::write(&file, "nodes: [{ id: 7, address: 'a.example.org:1' }]\n").unwrap();
        let listed = read(&list).unwrap();
        assert_eq!((listed.nodes.len(), listed.nodes[0].id.get(), listed.pool), (1, 7, Pool::Listed));
        std::fs::write(&file, "nodes: [{ id: 0, address: b }]\n").unwrap();
        let wrong = read(&list).unwrap_err();
        assert!(wrong.contains("nodes[0].id") && wrong.contains("nodes[0].address"), "{wrong}");
        std::fs::write(&file, vec![b' '; MAX_FILE_BYTES + 1]).unwrap();
        assert!(read(&list).unwrap_err().contains("larger"));

        let names = "--dns fleet.example.org --dns-node-template node-{id}.fleet.example.org --ids 1-3";
        let found = read(names).unwrap();
        assert_eq!((found.nodes.len(), found.nodes[2].endpoint.port), (3, 7443));
        assert!(matches!(found.pool, Pool::Named { port: 7443, agent_port: Some(7445), .. }));
        assert_eq!(read(&format!("{names} --port 8443")).unwrap().nodes[0].endpoint.port, 8443);
        std::fs::write(&file, "nodes: [{ id: 7, address: 'a.example.org:1' }]\n").unwrap();
        assert!(read(&list).is_ok());
        for wrong in [
            "",
            "--dns fleet.example.org",
            "--dns fleet.example.org --ids 1",
            "--ids 1-3",
            &format!("{list} {names}"),
            &format!("{names} --port 0"),
            &format!("{list} --port 8443"),
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
