//! Values that a configuration may hold: each is checked once, and can then stand in any place of either format.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use node_id::NodeId;

/// Maximum number of nodes.
pub const MAX_NODES: usize = 512;
/// Part of a template that is replaced by a node's number.
const ID: &str = "{id}";

/// Reason why a text is not such a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("must be a host name: labels of letters, digits and `-`, with dots between them")]
    Host,
    #[error(
        "must be a host name, or the name of SRV records that ends in one, such as _cofferd._tcp.fleet.example.org"
    )]
    Dns,
    #[error(
        "must be a host and a port, such as node-1.example.org:7443, 192.0.2.1:7443 or [2001:db8::1]:7443"
    )]
    Endpoint,
    #[error("must be a host name with {{id}} in it once, such as node-{{id}}.fleet.example.org")]
    Template,
    #[error("must be an absolute path of a directory, without quotes, backslashes and control characters")]
    Directory,
    #[error("must be node numbers from 1 to 65535, such as 1-16 or 1,2,7-9, at most {MAX_NODES}, each once")]
    Ids,
}

/// A host name of DNS, in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostName(String);

/// Returns true for a label of letters, digits and `-`.
fn is_label(label: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=63).contains(&label.len())
        && label.bytes().all(is_inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl FromStr for HostName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let is_name = text.len() <= 253 && text.split('.').all(is_label);
        // A name whose last label is a number would be read as an address.
        let last = text.rsplit('.').next().unwrap_or_default();
        if !is_name || last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadName::Host);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Name that DNS resolves to the nodes of a fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsName {
    /// Name with addresses.
    Addresses(HostName),
    /// Service with SRV records, and the host name at its end.
    Service(String, HostName),
}

impl DnsName {
    /// Returns the name that is in the certificate of each node.
    pub fn host(&self) -> &HostName {
        match self {
            Self::Addresses(host) | Self::Service(_, host) => host,
        }
    }
}

impl FromStr for DnsName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let (mut rest, mut has_service) = (text, false);
        while let Some(service) = rest.strip_prefix('_') {
            let (label, after) = service.split_once('.').ok_or(BadName::Dns)?;
            if !is_label(label) {
                return Err(BadName::Dns);
            }
            (rest, has_service) = (after, true);
        }
        let host: HostName = rest.parse().map_err(|_| BadName::Dns)?;
        if !has_service {
            return Ok(Self::Addresses(host));
        }
        if text.len() > 253 {
            return Err(BadName::Dns);
        }
        Ok(Self::Service(text.to_ascii_lowercase(), host))
    }
}

/// Name or address of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    Name(HostName),
    Address(IpAddr),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(address) => address.fmt(f),
        }
    }
}

/// Host and TCP port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub host: Host,
    pub port: u16,
}

impl FromStr for Endpoint {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let endpoint = if let Ok(address) = text.parse::<SocketAddr>() {
            // The zone of an address has a meaning on one host alone, and is lost here.
            Self { host: Host::Address(address.ip()), port: address.port() }
        } else {
            let (host, port) = text.rsplit_once(':').ok_or(BadName::Endpoint)?;
            let host = host.parse().map_err(|_| BadName::Endpoint)?;
            let is_plain = port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|_| is_plain).ok_or(BadName::Endpoint)?;
            Self { host: Host::Name(host), port }
        };
        if endpoint.port == 0 || text.contains('%') { Err(BadName::Endpoint) } else { Ok(endpoint) }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(address) => SocketAddr::new(*address, self.port).fmt(f),
        }
    }
}

/// Host names of nodes, made of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNames {
    before: String,
    after: String,
}

impl NodeNames {
    /// Returns the name of a node.
    pub fn name_of(&self, id: NodeId) -> HostName {
        // The template was checked with the longest number, and with a digit at its place.
        HostName(format!("{}{id}{}", self.before, self.after))
    }
}

impl FromStr for NodeNames {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let (before, after) = text.split_once(ID).ok_or(BadName::Template)?;
        let longest = format!("{before}65535{after}");
        longest.parse::<HostName>().map_err(|_| BadName::Template)?;
        Ok(Self { before: before.to_ascii_lowercase(), after: after.to_ascii_lowercase() })
    }
}

/// Absolute path of a directory, which can stand within single quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory(String);

impl Directory {
    /// Returns the path of a file in the directory.
    pub fn file(&self, name: &'static str) -> String {
        format!("{}/{name}", self.0)
    }
}

impl FromStr for Directory {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let is_plain = |c: char| !c.is_control() && !matches!(c, '\'' | '"' | '\\');
        let path = text.trim_end_matches('/');
        let is_valid = text.starts_with('/') && text.len() <= 1_024 && text.chars().all(is_plain);
        if is_valid && !path.is_empty() { Ok(Self(path.to_owned())) } else { Err(BadName::Directory) }
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Numbers of nodes, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids(pub(crate) Vec<NodeId>);

impl FromStr for Ids {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let mut ids = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let bound = |text: &str| text.parse::<NodeId>().map_err(|_| BadName::Ids);
            let (first, last) = (bound(first)?.get(), bound(last)?.get());
            if first > last || usize::from(last - first) >= MAX_NODES {
                return Err(BadName::Ids);
            }
            ids.extend((first..=last).filter_map(|number| NodeId::try_from(number).ok()));
            if ids.len() > MAX_NODES {
                return Err(BadName::Ids);
            }
        }
        ids.sort_unstable();
        let all = ids.len();
        ids.dedup();
        if ids.len() == all { Ok(Self(ids)) } else { Err(BadName::Ids) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_name_is_labels_and_nothing_else() {
        for name in ["localhost", "Node-1.Example.org", "a", "1a.b2"] {
            assert_eq!(name.parse::<HostName>().unwrap().to_string(), name.to_lowercase());
        }
        let long = format!("{}.org", "a".repeat(64));
        for wrong in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "a b",
            "a\nb",
            "a'b",
            "a\"b",
            "a#b",
            "a{b",
            "a%b",
            "a/b",
            "a:1",
            "_a.b",
            "192.0.2.1",
            "1",
            "a.1",
            "ä.org",
            &long,
            &"a.".repeat(127),
        ] {
            assert_eq!(wrong.parse::<HostName>(), Err(BadName::Host), "{wrong:?}");
        }
    }

    #[test]
    fn a_name_with_underscores_is_a_service() {
        let host: HostName = "fleet.example.org".parse().unwrap();
        assert_eq!("fleet.example.org".parse(), Ok(DnsName::Addresses(host.clone())));
        let service = "_cofferd._tcp.fleet.example.org";
        assert_eq!(service.parse(), Ok(DnsName::Service(service.to_owned(), host)));
        for wrong in ["_", "_a", "_.b", "_a b.c", "_a._tcp.", "x._tcp.b", "_a.192.0.2.1", "_a\n.b"] {
            assert_eq!(wrong.parse::<DnsName>(), Err(BadName::Dns), "{wrong:?}");
        }
    }

    #[test]
    fn an_endpoint_is_a_host_and_a_port() {
        for endpoint in ["node-1.example.org:7443", "192.0.2.1:1", "[2001:db8::1]:65535"] {
            assert_eq!(endpoint.parse::<Endpoint>().unwrap().to_string(), endpoint);
        }
        for wrong in [
            "",
            ":1",
            "a",
            "a:",
            "a:0",
            "a:65536",
            "a:+1",
            "a: 1",
            "a:1 b",
            "2001:db8::1:7443",
            "[::1]",
            "[fe80::1%2]:1",
            "192.0.2.1",
            "192.0.2.1:0",
            "a:1\n",
        ] {
            assert_eq!(wrong.parse::<Endpoint>(), Err(BadName::Endpoint), "{wrong:?}");
        }
    }

    #[test]
    fn names_of_nodes_have_the_number_once() {
        let names: NodeNames = "node-{id}.Fleet.example.org".parse().unwrap();
        assert_eq!(names.name_of("7".parse().unwrap()).to_string(), "node-7.fleet.example.org");
        for wrong in
            ["", "{id}", "node.example.org", "{id}-{id}.example.org", "a.{id}", "a b{id}.org", "{id}\n.org"]
        {
            assert_eq!(wrong.parse::<NodeNames>(), Err(BadName::Template), "{wrong:?}");
        }
    }

    #[test]
    fn a_directory_can_stand_in_quotes() {
        assert_eq!("/etc/balancer dir/".parse::<Directory>().unwrap().file("a"), "/etc/balancer dir/a");
        for wrong in ["", "/", "tls", "./tls", "/a'b", "/a\"b", "/a\\b", "/a\nb", "/a\0b"] {
            assert_eq!(wrong.parse::<Directory>(), Err(BadName::Directory), "{wrong:?}");
        }
    }

    #[test]
    fn ids_are_ranges_of_numbers() {
        let ids =
            |text: &str| text.parse::<Ids>().map(|ids| ids.0.iter().map(|id| id.get()).collect::<Vec<_>>());
        assert_eq!(ids("1-3"), Ok(vec![1, 2, 3]));
        assert_eq!(ids("9,1-2,65535"), Ok(vec![1, 2, 9, 65_535]));
        assert_eq!(ids("1-512").unwrap().len(), MAX_NODES);
        for wrong in [
            "",
            "0",
            "0-3",
            "3-1",
            "1,1",
            "1-3,2",
            "1-513",
            "1-512,600",
            "65536",
            "1-",
            "-1",
            "a",
            "1;2",
            " 1",
        ] {
            assert_eq!(ids(wrong), Err(BadName::Ids), "{wrong:?}");
        }
    }
}
