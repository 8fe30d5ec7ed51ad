//! Connections to all nodes at the same time.

use std::time::Duration;

use cofferdam_client::{Client, Connect, Endpoint, NODE_METADATA, NodeId};
use futures_util::future::join_all;
use presentation::exit::Exit;
use presentation::failure::Failure;
use presentation::ui::Ui;
use serde::Serialize;
use tokio::time::timeout;
use tonic::Request;
use tonic::metadata::MetadataMap;
use wire::v1::GetDaemonStatusRequest;

use crate::source::{Member, Source};

/// Way to name one node for certain.
const LIST: &str = "give a list of nodes with a name in the certificate of each, as in --fleet=nodes.yaml";

/// Time within which a node that lives connects and gives a first answer.
const ALIVE: Duration = Duration::from_secs(2);

/// Nodes, and the way to each.
pub struct Fleet {
    pub ui: Ui,
    pub(crate) nodes: Vec<Node>,
}

/// A daemon of the fleet.
#[derive(Clone)]
pub(crate) struct Node {
    /// Number, or the address as long as the number is not known.
    pub(crate) name: String,
    id: Option<NodeId>,
    connect: Connect,
}

/// A node that has answered.
pub struct Reached {
    /// Number, or the address of a daemon that has none.
    pub name: String,
    pub id: Option<NodeId>,
    pub client: Client,
}

/// Answers of the nodes, in their order.
pub struct Answers<T> {
    /// Name of each node that has answered, and its answer.
    pub all: Vec<(String, T)>,
    /// Names of the other nodes, each with the reason.
    pub missing: Vec<(String, Failure)>,
}

/// Returns the failure of a command that has no meaning for several nodes.
pub fn is_of_one_node(what: &str) -> Failure {
    Failure::usage(format!("{what} of one node"))
        .with_hint("name it by --node N; an id of a run names its node")
}

impl Fleet {
    /// Finds the nodes of a source. `connect` makes the connection to an endpoint, with credentials.
    pub async fn open(
        source: &Source,
        ui: Ui,
        connect: impl Fn(Endpoint) -> Connect,
    ) -> Result<Self, Failure> {
        let members = source.members().await?;
        let node = |Member { id, endpoint, server_name }| Node {
            name: id.map_or_else(|| endpoint.to_string(), |id: NodeId| id.to_string()),
            id,
            connect: connect(endpoint).with_server_name(server_name).with_node(id),
        };
        Ok(Self { ui, nodes: members.into_iter().map(node).collect() })
    }

    /// Returns the connection to one node. Asks the nodes for their numbers if the source does not have them, and fails if two say that
    /// they are this one: nothing else shows which of them it is.
    pub async fn connect_to(&self, id: NodeId) -> Result<Connect, Failure> {
        if let Some(node) = self.nodes.iter().find(|node| node.id == Some(id)) {
            return Ok(node.connect.clone());
        }
        if self.nodes.iter().any(|node| node.id.is_none()) {
            let reached = join_all(self.nodes.iter().map(Node::reach)).await;
            return self.claimed(id, reached.into_iter().map(|reached| reached.ok()?.id));
        }
        Err(Failure::usage(format!("the fleet has no node {id}")))
    }

    /// Returns the connection to the only daemon that says that it is this node. `said` has the number that each daemon says.
    fn claimed(
        &self,
        id: NodeId,
        said: impl IntoIterator<Item = Option<NodeId>>,
    ) -> Result<Connect, Failure> {
        let claims = self.nodes.iter().zip(said).filter(|(_, said)| *said == Some(id));
        let claims: Vec<&Node> = claims.map(|(node, _)| node).collect();
        match claims[..] {
            [] => Err(Failure::unreachable(format!("no daemon that answers is node {id}"))),
            [node] => Ok(node.connect.clone().with_node(Some(id))),
            [one, other, ..] => {
                let (one, other) = (&one.name, &other.name);
                let wrong = format!("the daemons at {one} and {other} both say that they are node {id}");
                Err(Failure::usage(wrong).with_hint(LIST))
            }
        }
    }

    /// Connects to all nodes. A number counts once, so that no answer counts twice.
    pub(crate) async fn reach(&self) -> Vec<Result<Reached, Failure>> {
        let mut reached = join_all(self.nodes.iter().map(Node::reach)).await;
        let mut seen = Vec::new();
        for one in &mut reached {
            let Some(id) = one.as_ref().ok().and_then(|node| node.id) else { continue };
            if seen.contains(&id) {
                // Final, so that no watch follows it.
                let twice = format!("it says that it is node {id}, as the daemon at another address does");
                *one = Err(Failure::usage(twice));
            } else {
                seen.push(id);
            }
        }
        reached
    }

    /// Asks all nodes at the same time, and warns of each that gives no answer. Fails if none does.
    pub async fn ask<T>(
        &self,
        ask: impl AsyncFn(&Reached) -> Result<T, Failure>,
    ) -> Result<Answers<T>, Failure> {
        let reached = self.reach().await;
        let ask = &ask;
        let asked = join_all(reached.into_iter().map(|reached| async move {
            let reached = reached?;
            let answer = ask(&reached).await?;
            Ok::<_, Failure>((reached.name, answer))
        }));
        let mut answers = Answers { all: Vec::new(), missing: Vec::new() };
        for (node, answer) in self.nodes.iter().zip(asked.await) {
            match answer {
                Ok(answer) => answers.all.push(answer),
                Err(failure) => {
                    self.warn(&node.name, &failure);
                    answers.missing.push((node.name.clone(), failure));
                }
            }
        }
        if answers.all.is_empty() {
            return Err(none_answers(answers.missing.into_iter().map(|(_, failure)| failure)));
        }
        Ok(answers)
    }

    /// Checks that the answer of a node can be printed with its structure, so that a node that sends nonsense fails alone.
    pub fn checked<T: Serialize>(&self, answer: T) -> Result<T, Failure> {
        checked(self.ui, answer)
    }

    /// Tells that a node gives no answer.
    pub(crate) fn warn(&self, name: &str, failure: &Failure) {
        self.ui.note(&format!("warning: node {name}: {}", failure.on_one_line()));
    }
}

/// Checks an answer as [`Fleet::checked`] does.
pub(crate) fn checked<T: Serialize>(ui: Ui, answer: T) -> Result<T, Failure> {
    if ui.is_data_only() {
        serde_json::to_writer(std::io::sink(), &answer)?;
    }
    Ok(answer)
}

/// Returns the failure of a command that no node answers.
pub(crate) fn none_answers(failures: impl IntoIterator<Item = Failure>) -> Failure {
    // A refusal says more than a node that is down.
    let refused = failures.into_iter().find(|failure| failure.exit() != Exit::Unreachable);
    refused.unwrap_or_else(|| Failure::unreachable("no node of the fleet can be reached"))
}

impl Node {
    /// Connects within the time that a node has which lives.
    pub(crate) async fn reach(&self) -> Result<Reached, Failure> {
        let late = |_| Failure::unreachable(format!("gives no answer within {} s", ALIVE.as_secs()));
        timeout(ALIVE, self.first_answer()).await.map_err(late)?
    }

    async fn first_answer(&self) -> Result<Reached, Failure> {
        let client = self.connect.connect().await?;
        let asked =
            client.daemon().get_daemon_status(Request::new(GetDaemonStatusRequest::default())).await?;
        let id = self.number(number_in(asked.metadata()))?;
        Ok(Reached { name: id.map_or_else(|| self.name.clone(), |id| id.to_string()), id, client })
    }

    /// Returns the number of the daemon. A number of the list counts, and not one that a daemon claims in its place.
    fn number(&self, said: Option<NodeId>) -> Result<Option<NodeId>, Failure> {
        match (self.id, said) {
            (Some(id), Some(said)) if id != said => {
                Err(Failure::usage(format!("the daemon there says that it is node {said}")))
            }
            (listed, said) => Ok(listed.or(said)),
        }
    }
}

/// Returns the number of the daemon that has answered.
fn number_in(metadata: &MetadataMap) -> Option<NodeId> {
    metadata.get(NODE_METADATA)?.to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use presentation::ui::Format;
    use tokio::net::TcpListener;

    use super::*;

    async fn fleet(list: &str) -> Fleet {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), list).unwrap();
        let source = Source::File(file.path().to_owned());
        Fleet::open(&source, Ui::new(Format::Json), Connect::to).await.unwrap()
    }

    #[tokio::test]
    async fn nodes_that_are_dead_or_silent_cost_two_seconds_together() {
        // It accepts connections, and never answers.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut list: Vec<_> =
            (1..=9).map(|id| format!("{{ id: {id}, address: 'localhost:{port}' }}")).collect();
        list.push("{ id: 10, address: 'localhost:1' }".to_owned());
        let fleet = fleet(&format!("nodes: [{}]", list.join(", "))).await;
        let began = Instant::now();
        let failed = fleet.ask(async |_| Ok(())).await.err().unwrap();
        assert_eq!(failed.exit(), Exit::Unreachable, "{failed}");
        let took = began.elapsed();
        // One after the other, they would cost nine times as much.
        assert!(took >= ALIVE && took < 4 * ALIVE, "{took:?}");
    }

    #[tokio::test]
    async fn one_node_is_found_by_its_number() {
        let fleet = fleet("nodes: [{ id: 7, address: 'node-7.example.org:1' }]").await;
        let connect = fleet.connect_to("7".parse().unwrap()).await.unwrap();
        assert_eq!(connect.endpoint().to_string(), "https://node-7.example.org:1");
        let wrong = fleet.connect_to("8".parse().unwrap()).await.unwrap_err();
        assert!(wrong.exit() == Exit::Usage && wrong.to_string().contains("no node 8"), "{wrong}");
    }

    #[tokio::test]
    async fn a_number_that_two_daemons_claim_is_no_node() {
        let two = "nodes: [{ id: 1, address: '192.0.2.1:1', server_name: a.example.org }, \
                   { id: 2, address: '192.0.2.2:1', server_name: a.example.org }]";
        let mut fleet = fleet(two).await;
        // As of a DNS name.
        for node in &mut fleet.nodes {
            node.id = None;
        }
        let (seven, eight) = (NodeId::try_from(7_u16).ok(), NodeId::try_from(8_u16).ok());
        let claimed = |said: [Option<NodeId>; 2]| fleet.claimed(seven.unwrap(), said);
        let found = claimed([eight, seven]).unwrap();
        assert_eq!(found.endpoint().to_string(), "https://192.0.2.2:1");
        let twice = claimed([seven, seven]).unwrap_err();
        assert!(twice.exit() == Exit::Usage && twice.to_string().contains("both say"), "{twice}");
        assert_eq!(claimed([eight, None]).unwrap_err().exit(), Exit::Unreachable);
    }

    #[tokio::test]
    async fn no_daemon_takes_the_number_of_another() {
        let fleet = fleet("nodes: [{ id: 7, address: 'node-7.example.org:1' }]").await;
        let number = |number: u16| NodeId::try_from(number).ok();
        assert_eq!(fleet.nodes[0].number(None).unwrap(), number(7));
        assert_eq!(fleet.nodes[0].number(number(7)).unwrap(), number(7));
        let refused = fleet.nodes[0].number(number(8)).unwrap_err();
        assert!(refused.to_string().contains("node 8"), "{refused}");
        let unknown = Node { id: None, ..fleet.nodes[0].clone() };
        assert_eq!(unknown.number(number(8)).unwrap(), number(8));
        assert_eq!(unknown.number(None).unwrap(), None);
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_printed_is_the_failure_of_its_node() {
        let fleet = fleet("nodes: [{ id: 7, address: 'node-7.example.org:1' }]").await;
        let run = |seconds| wire::v1::Run {
            created_at: Some(wire::Timestamp { seconds, nanos: 0 }),
            ..wire::v1::Run::default()
        };
        assert!(fleet.checked(vec![run(1_000)]).is_ok());
        let failed = fleet.checked(vec![run(1_000), run(i64::MAX)]).unwrap_err();
        assert!(failed.to_string().contains("cannot be shown as JSON"), "{failed}");
    }

    #[test]
    fn a_refusal_says_more_than_a_node_that_is_down() {
        let down = || Failure::unreachable("down");
        assert_eq!(none_answers([down(), Failure::not_permitted("no role")]).exit(), Exit::Denied);
        assert_eq!(none_answers([down(), down()]).exit(), Exit::Unreachable);
    }
}
