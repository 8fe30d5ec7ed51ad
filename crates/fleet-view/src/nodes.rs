//! The state of all nodes: `coffer --fleet node show` and `coffer --fleet status`.

use command_context::client::quick;
use presentation::exit::Exit;
use presentation::failure::{Ended, Failure};
use presentation::output::Output;
use presentation::quantity;
use serde::Serialize;
use wire::v1::{GetDaemonStatusRequest, GetDaemonStatusResponse, GetNodeRequest, Node};

use crate::fleet::Fleet;

/// Shows the state, the capacity and the use of all nodes.
pub async fn show(fleet: &Fleet) -> Ended {
    #[derive(Serialize)]
    struct Nodes {
        nodes: Vec<Node>,
    }
    let answers = fleet.ask(async |node| {
        let node = node.client.node().get_node(quick(GetNodeRequest {})).await?.into_inner().node;
        let node = node.ok_or_else(|| Failure::failed("the daemon answered without a node"))?;
        fleet.checked(node)
    });
    let (names, nodes): (Vec<_>, Vec<_>) = answers.await?.all.into_iter().unzip();
    fleet.ui.answer(Nodes { nodes }, |Nodes { nodes }, page| table(&names, &nodes, page))
}

fn table(names: &[String], nodes: &[Node], page: &mut Output) {
    let rows = names.iter().zip(nodes).map(|(name, node)| {
        let (used, most) = (node.used.unwrap_or_default(), node.capacity.unwrap_or_default());
        let of = |used: String, most: String| format!("{used}/{most}");
        let mib = |amount: u64| quantity::bytes(amount.saturating_mul(1 << 20));
        let known = |amount: u64, shown: String| if amount == 0 { "-".to_owned() } else { shown };
        let cores = |millis: u64| format!("{}.{:01}", millis / 1_000, millis % 1_000 / 100);
        vec![
            name.clone(),
            node.state().as_str_name().to_owned(),
            of(used.runs.to_string(), known(most.runs, most.runs.to_string())),
            of(mib(used.memory_mib), known(most.memory_mib, mib(most.memory_mib))),
            of(cores(used.cpu_millis), known(most.cpu_millis, cores(most.cpu_millis))),
            of(mib(used.disk_mib), known(most.disk_mib, mib(most.disk_mib))),
            node.versions.clone().unwrap_or_default().daemon,
            node.drain.clone().unwrap_or_default().reason,
        ]
    });
    page.table(&["NODE", "STATE", "RUNS", "MEMORY", "CORES", "DISK", "COFFERD", "DRAIN"], rows);
}

/// Shows if the daemons are ready. Exits with 1 if one is not, or does not answer.
pub async fn status(fleet: &Fleet, profiles: Vec<String>) -> Ended {
    #[derive(Serialize)]
    struct Status {
        node: String,
        status: GetDaemonStatusResponse,
    }
    let answers = fleet.ask(async |node| {
        let request = GetDaemonStatusRequest { profiles: profiles.clone() };
        fleet.checked(node.client.daemon().get_daemon_status(quick(request)).await?.into_inner())
    });
    let answers = answers.await?;
    let is_ready = answers.missing.is_empty() && answers.all.iter().all(|(_, status)| status.ready);
    let all: Vec<_> = answers.all.into_iter().map(|(node, status)| Status { node, status }).collect();
    fleet.ui.answer(all, |all, page| {
        let rows = all.iter().map(|Status { node, status }| {
            let unmet = status.conditions.iter().filter(|condition| !condition.met);
            let unmet: Vec<_> =
                unmet.map(|condition| format!("{}: {}", condition.name, condition.problem)).collect();
            let ready = if status.ready { "yes" } else { "no" };
            vec![node.clone(), ready.to_owned(), status.version.clone(), unmet.join("; ")]
        });
        page.table(&["NODE", "READY", "COFFERD", "PROBLEM"], rows);
    })?;
    Ok(if is_ready { Exit::Ok } else { Exit::Failed })
}

#[cfg(test)]
mod tests {
    use presentation::output::Look;
    use wire::v1::node::State;
    use wire::v1::{NodeAmounts, NodeDrain};

    use super::*;

    #[test]
    fn a_line_a_node() {
        let serving = Node {
            state: State::Serving.into(),
            capacity: Some(NodeAmounts { runs: 256, memory_mib: 2_048, cpu_millis: 16_000, disk_mib: 0 }),
            used: Some(NodeAmounts { runs: 2, memory_mib: 1_536, cpu_millis: 1_500, disk_mib: 64 }),
            ..Node::default()
        };
        let drain = NodeDrain { reason: "a new\u{1b}[31m kernel".into(), ..NodeDrain::default() };
        let drained = Node { state: State::Drained.into(), drain: Some(drain), ..Node::default() };
        let mut page = Output::new(Look::PIPE);
        table(&["1".to_owned(), "2".to_owned()], &[serving, drained], &mut page);
        let shown = page.as_str();
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 3, "{shown}");
        for (line, parts) in [
            (lines[1], &["1 ", "SERVING", "2/256", "1.5 GiB/2.0 GiB", "1.5/16.0", "/-"][..]),
            (lines[2], &["2 ", "DRAINED", "0/-", "a new", "kernel"]),
        ] {
            for part in parts {
                assert!(line.contains(part), "{part}: {shown}");
            }
        }
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}
