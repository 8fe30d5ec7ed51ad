//! `coffer --fleet`: lists, logs and their verification over all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use harness::{requests, until};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{Fleet, PATIENCE, SOON, VICTIM};

/// Events of a tail in JSON: the node and the sequence number of each, and the position after the last.
fn events(out: &str) -> (Vec<(String, u64)>, String) {
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let event = |line: &Value| {
        (line["node"].as_str().unwrap().to_owned(), line["record"]["sequence"].as_u64().unwrap())
    };
    let position = lines.last().unwrap()["position"].as_str().unwrap().to_owned();
    (lines.iter().map(event).collect(), position)
}

#[tokio::test(flavor = "multi_thread")]
async fn one_command_shows_all_nodes_and_a_dead_one_is_a_warning() {
    let mut fleet = Fleet::start().await;
    let mut ids = Vec::new();
    for daemon in &fleet.nodes {
        ids.push(daemon.run_on(requests::managed("p")).await.id().to_owned());
    }

    // Lists, newest first, and each node by itself.
    let runs: Value = serde_json::from_str(&fleet.all(&["-o", "json", "run", "list"]).await).unwrap();
    let shown: Vec<&str> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap()).collect();
    assert_eq!(shown, ids.iter().rev().collect::<Vec<_>>());
    let table = fleet.all(&["run", "list"]).await;
    assert!(table.starts_with("NODE"), "{table}");
    for (line, node) in table.lines().skip(1).zip(["3", "2", "1"]) {
        assert!(line.starts_with(node), "{table}");
    }
    let of_two = fleet.coffer(&["--node", "2", "-o", "name", "run", "list"]).await;
    assert_eq!(of_two.out.trim(), ids[1], "{}", of_two.err);
    for list in [&["approval", "list"][..], &["alert", "list"]] {
        assert_eq!(fleet.all(list).await, "", "{list:?}");
    }
    let nodes = fleet.all(&["node", "show"]).await;
    assert_eq!(nodes.matches("SERVING").count(), 3, "{nodes}");
    until("not all nodes are ready", async || fleet.coffer(&["--fleet", "status"]).await.code == 0).await;
    assert_eq!(fleet.all(&["status"]).await.matches("yes").count(), 3);
    assert_eq!(fleet.all(&["audit", "verify"]).await.matches(": intact: ").count(), 3);
    // A command for one node is refused with the way to it.
    for line in
        [&["run", "show", &ids[0]][..], &["run", "watch", &ids[0]], &["audit", "tail", "--run", &ids[0]]]
    {
        let refused = fleet.coffer(&[&["--fleet"], line].concat()).await;
        assert!(refused.code == 2 && refused.err.contains("--node N"), "{line:?}: {}", refused.err);
    }

    // Events of all logs, each once, in the order of each log, and on from a position.
    let (first, position) = events(&fleet.all(&["-o", "json", "audit", "tail"]).await);
    for node in ["1", "2", "3"] {
        let of_node: Vec<u64> = first.iter().filter(|(name, _)| name == node).map(|(_, at)| *at).collect();
        assert!(of_node.len() > 2 && of_node.iter().copied().eq(1..=of_node.len() as u64), "{of_node:?}");
    }
    fleet.nodes[2].run_on(requests::managed("p")).await;
    let tail = ["-o", "json", "audit", "tail", "--after", &position];
    let (second, position) = events(&fleet.all(&tail).await);
    assert!(second.iter().any(|(node, _)| node == "3"), "{second:?}");
    let mut seen: BTreeSet<_> = first.into_iter().collect();
    assert!(second.into_iter().all(|event| seen.insert(event)), "an event was repeated");
    let rest = fleet.all(&["-o", "json", "audit", "tail", "--after", &position]).await;
    assert!(rest.is_empty() || events(&rest).0.into_iter().all(|event| seen.insert(event)), "{rest}");
    let query = ["audit", "query", "--kind", "run_created", "--limit", "2"];
    until("the newest records are not found", async || {
        let newest = fleet.all(&query).await;
        newest.lines().count() == 2 && newest.lines().all(|line| line.starts_with('3'))
    })
    .await;
    // What all nodes refuse is a failure, and not an empty answer.
    let refused = fleet.coffer(&["--fleet", "audit", "tail", "--agent", &"x".repeat(257)]).await;
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{}", refused.err);

    // A bundle says which node it is from.
    let bundle = fleet.directory.path().join("run.bundle").display().to_string();
    let made = fleet.coffer(&["--node", "2", "bundle", "create", &ids[1], &bundle]).await;
    assert_eq!(made.code, 0, "{}", made.err);
    let verified = fleet.coffer(&["bundle", "verify", &bundle]).await;
    assert!(verified.out.contains("\nfrom: node 2, instance "), "{}{}", verified.out, verified.err);

    // A dead node is a warning. A log that was not verified is not proved.
    fleet.nodes[VICTIM].kill().await;
    let left = fleet.coffer(&["--fleet", "-o", "name", "run", "list"]).await;
    assert_eq!((left.code, left.out.lines().count()), (0, 3), "{}", left.err);
    assert!(left.err.contains("warning: node 2: ") && !left.err.contains("node 1"), "{}", left.err);
    assert!(left.took < SOON + SOON, "{:?}", left.took);
    let verified = fleet.coffer(&["--fleet", "audit", "verify"]).await;
    assert_eq!((verified.code, verified.out.matches(": intact: ").count()), (5, 2), "{}", verified.err);
    assert_eq!(fleet.coffer(&["--fleet", "status"]).await.code, 1);
    let dead = fleet.coffer(&["--node", "2", "run", "list"]).await;
    assert!(dead.code == 5 && dead.took < SOON, "{:?} {}", dead.took, dead.err);
    for index in [0, 2] {
        fleet.nodes[index].kill().await;
    }
    let none = fleet.coffer(&["--fleet", "run", "list"]).await;
    assert_eq!(none.code, 5, "{}", none.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_of_all_logs_outlives_the_death_of_a_node_and_repeats_nothing() {
    let mut fleet = Fleet::start().await;
    let mut command = fleet.command(&["--fleet", "-o", "json", "audit", "tail", "--follow"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut talk = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut seen = Vec::new();
    let mut until_created = async |run_id: &str| {
        let found = async {
            loop {
                let line: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
                let record = &line["record"];
                seen.push((line["node"].to_string(), record["sequence"].as_u64().unwrap()));
                if record["kind"] == "run_created" && record["run_id"] == run_id {
                    return;
                }
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("the event of the run does not come");
    };
    for index in [0, 1] {
        let run = fleet.nodes[index].run_on(requests::managed("p")).await;
        until_created(run.id()).await;
    }

    fleet.nodes[VICTIM].kill().await;
    let warned = tokio::time::timeout(PATIENCE, talk.next_line()).await.unwrap().unwrap().unwrap();
    assert!(warned.contains("warning: node 2: "), "{warned}");
    let run = fleet.nodes[2].run_on(requests::managed("p")).await;
    tokio::time::timeout(SOON, until_created(run.id())).await.expect("the others wait for the dead node");
    fleet.nodes[VICTIM].launch().await;
    let is_back = async { while !talk.next_line().await.unwrap().unwrap().contains("node 2 is back") {} };
    tokio::time::timeout(PATIENCE, is_back).await.expect("no line says that the node is back");
    let run = fleet.nodes[VICTIM].run_on(requests::managed("p")).await;
    until_created(run.id()).await;

    let mut by_node = BTreeMap::<_, Vec<u64>>::new();
    for (node, sequence) in seen {
        by_node.entry(node).or_default().push(sequence);
    }
    for (node, sequences) in by_node {
        assert!(sequences.iter().copied().eq(1..=sequences.len() as u64), "{node}: {sequences:?}");
    }
}
