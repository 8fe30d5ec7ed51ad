#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod envoy;
mod fleet;
mod haproxy;
mod health;
mod names;

use std::net::SocketAddr;

pub use envoy::{NoServices, files as envoy};
pub use fleet::{Fleet, Node, Pool};
pub use haproxy::text as haproxy;
pub use names::{BadName, Directory, DnsName, Endpoint, Host, HostName, Ids, MAX_NODES, NodeNames};

/// Name under which the health of a node says that it makes runs.
const CREATION: &str = "cofferdam.create";
/// Name under which the health of a node says that it lives.
const LIVENESS: &str = "liveness";
/// Path of the method that any node can serve, if it makes runs.
const CREATE_RUN: &str = "/cofferdam.v1.RunService/CreateRun";
/// Maximum number of streams of one connection, as the daemon has it.
const STREAMS: u32 = 64;
/// Number of bytes of one stream that may be sent ahead, as the daemon has it.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// Maximum number of connections of clients.
const CONNECTIONS: u32 = 4_096;
/// Answer to a request for a node that the balancer does not know.
const UNKNOWN_NODE: &str = "the balancer has no node with this number";
/// Answer to a request that no node can take.
const NO_NODE: &str = "no node for this request is in service";

/// Side of the balancer that clients see, and its certificates.
#[derive(Debug, Clone)]
pub struct Front {
    /// Address on which it listens.
    pub listen: SocketAddr,
    /// Directory of the certificate that clients see, with `ca.pem` of their authority, `cert.pem` and `key.pem`.
    pub tls: Directory,
    /// Directory of the certificate that nodes see, with `ca.pem` of their authority, `cert.pem` and `key.pem`.
    pub node_tls: Directory,
}

#[cfg(test)]
mod testing {
    use super::{Fleet, Front};

    pub(crate) fn front() -> Front {
        Front {
            listen: "0.0.0.0:7443".parse().unwrap(),
            tls: "/etc/balancer/tls".parse().unwrap(),
            node_tls: "/etc/balancer/node tls".parse().unwrap(),
        }
    }

    pub(crate) fn listed() -> Fleet {
        let text = "nodes:\n\
            - { id: 1, address: 'node-1.example.org:7443', weight: 3, agent_check: '192.0.2.1:7445' }\n\
            - { id: 20, address: '192.0.2.20:7443', server_name: node-20.example.org }\n";
        Fleet::read("nodes.yaml", text).unwrap()
    }

    pub(crate) fn named(name: &str) -> Fleet {
        let names = "node-{id}.fleet.example.org".parse().unwrap();
        Fleet::of_names(name.parse().unwrap(), 7443, &names, &"1-2".parse().unwrap(), Some(7445))
    }
}
