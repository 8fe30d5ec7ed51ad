//! The nodes of a fleet: a list in a file, or the addresses of a DNS name.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use cofferdam_client::{Endpoint, NodeId};
use command_context::file;
use fleet_config::{DnsName, Host, HostName, MAX_NODES};
use presentation::failure::Failure;
use tokio::net::lookup_host;
use tokio::time::timeout;

const DNS: &str = "dns:";
/// Port of the nodes of a DNS name, unless it has one.
const PORT: u16 = 7443;
const LOOKUP: Duration = Duration::from_secs(5);

/// Source of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// File with a list of nodes.
    File(PathBuf),
    /// DNS name, as it was written after `dns:`.
    Dns(String),
}

impl FromStr for Source {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.strip_prefix(DNS) {
            Some(name) => Self::Dns(name.to_owned()),
            None => Self::File(text.into()),
        })
    }
}

/// A daemon that a source names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Number, if the source has it. Otherwise the daemon says it.
    pub(crate) id: Option<NodeId>,
    pub(crate) endpoint: Endpoint,
    /// Name that its certificate has, if it is not the endpoint's host.
    pub(crate) server_name: Option<String>,
}

impl Source {
    pub(crate) async fn members(&self) -> Result<Vec<Member>, Failure> {
        match self {
            Self::File(file) => listed(file),
            Self::Dns(name) => named(name).await,
        }
    }
}

fn listed(path: &Path) -> Result<Vec<Member>, Failure> {
    let shown = path.display().to_string();
    let text =
        file::text(path).map_err(|error| Failure::usage(format!("the fleet's nodes: {shown}: {error}")))?;
    let fleet = fleet_config::Fleet::read(&shown, &text).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Failure::usage(problems.join("\n"))
    })?;
    let member = |node: &fleet_config::Node| {
        let server_name = match &node.endpoint.host {
            Host::Name(name) if *name == node.server_name => None,
            _ => Some(node.server_name.to_string()),
        };
        Ok(Member { id: Some(node.id), endpoint: https(&node.endpoint)?, server_name })
    };
    fleet.nodes.iter().map(member).collect()
}

async fn named(written: &str) -> Result<Vec<Member>, Failure> {
    let wrong = |why: &str| Failure::usage(format!("dns:{written}: {why}"));
    let (host, port) = host_and_port(written).map_err(wrong)?;
    let found = timeout(LOOKUP, lookup_host((host.to_string(), port))).await;
    let found =
        found.map_err(|_| Failure::unreachable(format!("dns:{written}: DNS gave no answer in time")))?;
    let found = found.map_err(|error| Failure::unreachable(format!("dns:{written}: {error}")))?;
    let mut addresses: Vec<SocketAddr> = found.collect();
    addresses.sort_unstable();
    addresses.dedup();
    if addresses.is_empty() || addresses.len() > MAX_NODES {
        let number = addresses.len();
        return Err(wrong(&format!("it has {number} addresses; a fleet has 1 to {MAX_NODES} nodes")));
    }
    let member = |address: SocketAddr| {
        Ok(Member { id: None, endpoint: https(&address)?, server_name: Some(host.to_string()) })
    };
    addresses.into_iter().map(member).collect()
}

/// Parses `NAME` or `NAME:PORT`.
fn host_and_port(written: &str) -> Result<(HostName, u16), &'static str> {
    const FORM: &str = "write a host name, such as dns:fleet.example.org or dns:fleet.example.org:7443";
    let (name, port) = match written.split_once(':') {
        None => (written, PORT),
        Some((name, port)) => {
            let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|port| is_plain && *port > 0);
            (name, port.ok_or(FORM)?)
        }
    };
    match name.parse::<DnsName>().map_err(|_| FORM)? {
        DnsName::Addresses(host) => Ok((host, port)),
        DnsName::Service(..) => Err("SRV records are not read: give a name with addresses, or a file"),
    }
}

fn https(address: &impl ToString) -> Result<Endpoint, Failure> {
    let address = address.to_string();
    format!("https://{address}").parse().map_err(|wrong| Failure::usage(format!("{address}: {wrong}")))
}

#[cfg(test)]
mod tests {
    use document::MAX_FILE_BYTES;

    use super::*;

    #[test]
    fn a_source_is_a_file_or_a_name() {
        assert_eq!("nodes.yaml".parse(), Ok(Source::File("nodes.yaml".into())));
        assert_eq!("dns:a.example.org:1".parse(), Ok(Source::Dns("a.example.org:1".to_owned())));
        let port = |written: &str| host_and_port(written).map(|(host, port)| (host.to_string(), port));
        assert_eq!(port("Fleet.example.org"), Ok(("fleet.example.org".to_owned(), 7443)));
        assert_eq!(port("fleet.example.org:1"), Ok(("fleet.example.org".to_owned(), 1)));
        for wrong in ["", ":", ":1", "a:", "a:0", "a:65536", "a:+1", "a b", "192.0.2.1", "a:1:2", "[::1]:1"] {
            assert!(port(wrong).is_err_and(|why| why.contains("dns:fleet.example.org")), "{wrong}");
        }
        assert!(port("_cofferd._tcp.fleet.example.org").is_err_and(|why| why.contains("SRV")));
    }

    #[tokio::test]
    async fn a_list_has_numbers_addresses_and_names_of_certificates() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let list = "nodes:\n- { id: 1, address: 'node-1.example.org:7443', weight: 3 }\n\
                    - { id: 20, address: '192.0.2.20:1', server_name: node-20.example.org }\n";
        std::fs::write(file.path(), list).unwrap();
        let source = Source::File(file.path().to_owned());
        let member = |id: &str, endpoint: &str, server_name: Option<&str>| Member {
            id: Some(id.parse().unwrap()),
            endpoint: endpoint.parse().unwrap(),
            server_name: server_name.map(str::to_owned),
        };
        let expected = [
            member("1", "https://node-1.example.org:7443", None),
            member("20", "https://192.0.2.20:1", Some("node-20.example.org")),
        ];
        assert_eq!(source.members().await.unwrap(), expected);
        std::fs::write(file.path(), "nodes: [{ id: 0 }]").unwrap();
        let wrong = source.members().await.unwrap_err().to_string();
        assert!(wrong.contains("nodes[0].id") && wrong.contains("`address` is missing"), "{wrong}");
        std::fs::write(file.path(), "#".repeat(MAX_FILE_BYTES + 1)).unwrap();
        assert!(source.members().await.unwrap_err().to_string().contains("larger"));
        assert!(Source::File("/nonexistent/nodes".into()).members().await.is_err());
    }

    #[tokio::test]
    async fn the_addresses_of_a_name_are_members() {
        let members = Source::Dns("localhost:7000".to_owned()).members().await.unwrap();
        assert!(!members.is_empty());
        for member in members {
            assert!(member.id.is_none() && member.endpoint.to_string().ends_with(":7000"), "{member:?}");
            assert_eq!(member.server_name.as_deref(), Some("localhost"));
        }
    }
}
