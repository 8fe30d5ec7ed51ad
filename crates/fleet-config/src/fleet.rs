//! The nodes of a fleet: listed in a file, or named by a pattern of DNS names.

use std::collections::BTreeSet;

use document::{At, Problem};
use node_id::NodeId;

use crate::names::{BadName, DnsName, Endpoint, Host, HostName, Ids, MAX_NODES, NodeNames};

/// Largest weight, which is HAProxy's.
pub(crate) const MAX_WEIGHT: u16 = 256;

/// A node as the balancer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub id: NodeId,
    /// Where it listens.
    pub endpoint: Endpoint,
    /// Name that its certificate has.
    pub server_name: HostName,
    /// Share of the runs that it makes, against the weights of the others.
    pub weight: u16,
    /// Where it answers agent checks of HAProxy.
    pub agent: Option<Endpoint>,
}

/// Source of the nodes for requests that any node can serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pool {
    /// The nodes of the list, by their weights.
    Listed,
    /// The hosts that DNS has for a name, at any time.
    Named {
        name: DnsName,
        /// Port of the hosts, if DNS does not say.
        port: u16,
        /// Port of their agent checks.
        agent_port: Option<u16>,
    },
}

/// Nodes that share one address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    pub nodes: Vec<Node>,
    pub pool: Pool,
}

impl Fleet {
    /// Reads a list of nodes, and reports every problem in it. `file` is its name in problems.
    pub fn read(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let nodes = document::read(file, text, |top| {
            let fields = top.fields(&["nodes"]);
            let listed = fields.required("nodes").map(At::items).unwrap_or_default();
            if let Some(at) = fields.get("nodes").filter(|_| !(1..=MAX_NODES).contains(&listed.len())) {
                at.problem(format!("must be 1 to {MAX_NODES} nodes"));
                return Vec::new();
            }
            let mut seen = BTreeSet::new();
            listed.iter().filter_map(|at| node(at, &mut seen)).collect()
        })?;
        Ok(Self { nodes, pool: Pool::Listed })
    }

    /// Returns the fleet whose nodes have such names, and whose hosts DNS has for `name`.
    pub fn of_names(name: DnsName, port: u16, names: &NodeNames, ids: &Ids, agent_port: Option<u16>) -> Self {
        let node = |id: &NodeId| {
            let server_name = names.name_of(*id);
            let endpoint = Endpoint { host: Host::Name(server_name.clone()), port };
            Node { id: *id, endpoint, server_name, weight: 1, agent: None }
        };
        Self { nodes: ids.0.iter().map(node).collect(), pool: Pool::Named { name, port, agent_port } }
    }
}

fn node(at: &At<'_>, seen: &mut BTreeSet<NodeId>) -> Option<Node> {
    let fields = at.fields(&["id", "address", "server_name", "weight", "agent_check"]);
    let id = fields.required("id").and_then(|at| {
        let number = u16::try_from(at.number(1..=u16::MAX.into())?).ok()?;
        let id = NodeId::try_from(number).ok()?;
        if !seen.insert(id) {
            at.problem("is the number of another node, too");
        }
        Some(id)
    });
    let endpoint = fields.required("address").and_then(parsed::<Endpoint>);
    let server_name = match (fields.get("server_name"), &endpoint) {
        (Some(at), _) => parsed(at),
        (None, Some(Endpoint { host: Host::Name(name), .. })) => Some(name.clone()),
        (None, Some(_)) => {
            at.problem("`server_name` is missing: the name in the node's certificate, as `address` has none");
            None
        }
        (None, None) => None,
    };
    let weight = fields.number_or("weight", 1..=MAX_WEIGHT.into(), 1);
    let agent = fields.get("agent_check").map(parsed);
    let agent = match agent {
        Some(agent) => Some(agent?),
        None => None,
    };
    Some(Node {
        id: id?,
        endpoint: endpoint?,
        server_name: server_name?,
        weight: u16::try_from(weight).ok()?,
        agent,
    })
}

/// Reads a value of a type, or reports why it is not one.
fn parsed<T: std::str::FromStr<Err = BadName>>(at: &At<'_>) -> Option<T> {
    at.text()?.parse().map_err(|wrong: BadName| at.problem(wrong.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{listed, named};

    #[test]
    fn a_list_is_read() {
        let fleet = listed();
        let shown: Vec<_> = fleet
            .nodes
            .iter()
            .map(|node| {
                let agent = node.agent.as_ref().map(ToString::to_string);
                (node.id.get(), node.endpoint.to_string(), node.server_name.to_string(), node.weight, agent)
            })
            .collect();
        let one = ("node-1.example.org:7443".to_owned(), "node-1.example.org".to_owned());
        let twenty = ("192.0.2.20:7443".to_owned(), "node-20.example.org".to_owned());
        assert_eq!(
            shown,
            [(1, one.0, one.1, 3, Some("192.0.2.1:7445".to_owned())), (20, twenty.0, twenty.1, 1, None)]
        );
    }

    #[test]
    fn every_problem_of_a_list_is_named() {
        let text = "nodes:\n\
            - { id: 0, address: 'a.example.org:7443' }\n\
            - { id: 2, address: a.example.org }\n\
            - { id: 3, address: '192.0.2.3:7443' }\n\
            - { id: 4, address: 'b.example.org:1', weight: 257, agent_check: here, name: x }\n\
            - { id: 5, address: 'c.example.org:1', server_name: \"x' y\" }\n\
            - { id: 6, address: 'd.example.org:1' }\n\
            - { id: 6, address: 'e.example.org:1' }\n\
            - { address: 'f.example.org:1' }\n";
        let problems = Fleet::read("f", text).unwrap_err();
        let mut said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        said.sort();
        let expected = [
            ("f:2", "nodes[0].id"),
            ("f:3", "nodes[1].address"),
            ("f:4", "nodes[2]: `server_name`"),
            ("f:5", "nodes[3].agent_check"),
            ("f:5", "nodes[3].name"),
            ("f:5", "nodes[3].weight"),
            ("f:6", "nodes[4].server_name"),
            ("f:8", "nodes[6].id"),
            ("f:9", "nodes[7]: `id`"),
        ];
        assert_eq!(said.len(), expected.len(), "{said:#?}");
        for ((line, key), said) in expected.iter().zip(&said) {
            assert!(said.starts_with(line) && said.contains(key), "{line} {key}: {said}");
        }
    }

    #[test]
    fn a_list_has_nodes_and_not_too_many() {
        let item = |id: u32| format!("- {{ id: {id}, address: 'n{id}.example.org:1' }}");
        let many = (1..=513).map(item).collect::<Vec<_>>().join("\n");
        for text in ["", "nodes:", "nodes: []", "nodes: 7", &format!("nodes:\n{many}")] {
            assert!(Fleet::read("f", text).is_err(), "{}", text.len());
        }
    }

    #[test]
    fn names_make_nodes() {
        let fleet = named("fleet.example.org");
        let endpoints: Vec<_> = fleet.nodes.iter().map(|node| node.endpoint.to_string()).collect();
        assert_eq!(endpoints, ["node-1.fleet.example.org:7443", "node-2.fleet.example.org:7443"]);
        assert!(matches!(fleet.pool, Pool::Named { port: 7443, agent_port: Some(7445), .. }));
    }
}
