//! `coffer node show`.

use clap::Args;
use command_context::client::{Context, quick};
use presentation::failure::Ended;
use presentation::output::Output;
use presentation::{quantity, time};
use wire::v1::{GetNodeRequest, Node, NodeAmounts};

use crate::present;

/// Show the identity, the state, the capacity and the use of the node, and its images, bases and pools.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer node show")]
pub struct Show {}

impl Show {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let node = client.node().get_node(quick(GetNodeRequest {})).await?.into_inner().node;
        context.ui.answer(present(node)?, |node, page| render(&node, page))
    }
}

/// Prints the whole node.
pub(crate) fn render(node: &Node, page: &mut Output) {
    facts(node, page);
    page.own("\n");
    amounts(node, page);
    let images = node.images.iter().map(|image| vec![image.reference.clone(), image.image_id.clone()]);
    part(page, &["IMAGE", "ID"], images);
    let bases = node.bases.iter().map(|base| vec![base.base_id.clone(), base.digest.clone()]);
    part(page, &["BASE", "DIGEST"], bases);
    let pools = node
        .pools
        .iter()
        .map(|pool| vec![pool.name.clone(), pool.waiting.to_string(), pool.wanted.to_string()]);
    part(page, &["POOL", "WAITING", "WANTED"], pools);
}

/// Prints a table, unless it is empty.
fn part(page: &mut Output, columns: &[&'static str], rows: impl ExactSizeIterator<Item = Vec<String>>) {
    if rows.len() > 0 {
        page.own("\n");
        page.table(columns, rows);
    }
}

fn facts(node: &Node, page: &mut Output) {
    let versions = node.versions.clone().unwrap_or_default();
    let mut labels: Vec<_> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    labels.sort();
    let limit = node.creates_per_minute;
    let creates = if limit == 0 { "any number".to_owned() } else { format!("{limit} a minute") };
    let mut facts = vec![
        ("node", if node.node_id == 0 { "-".to_owned() } else { node.node_id.to_string() }),
        ("state", node.state().as_str_name().to_owned()),
        ("since", time::known(node.state_since.as_ref())),
    ];
    if let Some(drain) = &node.drain {
        facts.push(("reason", format!("{} ({})", drain.reason, drain.principal)));
        facts.push(("runs end", time::known(drain.deadline.as_ref())));
    }
    facts.extend([
        ("labels", labels.join(", ")),
        ("instance", node.instance.clone()),
        ("cofferd", versions.daemon),
        ("engine", versions.engine),
        ("kernel", format!("{} {}", versions.kernel, versions.architecture)),
        ("creates", creates),
    ]);
    facts.retain(|(_, value)| !value.is_empty());
    page.facts(&facts);
}

fn amounts(node: &Node, page: &mut Output) {
    let (most, used) = (node.capacity.unwrap_or_default(), node.used.unwrap_or_default());
    let rows = rows(used).into_iter().zip(rows(most)).map(|((resource, used), (_, most))| {
        let most = if most.is_empty() { "not known".to_owned() } else { most };
        // The number of runs is always a bound.
        let is_bound = node.capacity_is_enforced || resource == "runs";
        let holds = if is_bound { "yes" } else { "no" };
        vec![resource.to_owned(), if used.is_empty() { "0".to_owned() } else { used }, most, holds.to_owned()]
    });
    page.table(&["RESOURCE", "USED", "CAPACITY", "A BOUND"], rows);
}

/// Returns each resource with its amount, or an empty text for none.
fn rows(amounts: NodeAmounts) -> [(&'static str, String); 4] {
    let some = |amount: u64, shown: String| if amount == 0 { String::new() } else { shown };
    let mib = |amount: u64| some(amount, quantity::bytes(amount.saturating_mul(1 << 20)));
    let cores = amounts.cpu_millis;
    [
        ("runs", some(amounts.runs, amounts.runs.to_string())),
        ("memory", mib(amounts.memory_mib)),
        ("cores", some(cores, format!("{}.{:03}", cores / 1_000, cores % 1_000))),
        ("disk", mib(amounts.disk_mib)),
    ]
}

#[cfg(test)]
mod tests {
    use presentation::output::Look;
    use wire::v1::node::State;
    use wire::v1::{NodeDrain, NodeImage, NodePool, NodeVersions};

    use super::*;

    #[test]
    fn a_node_is_shown_with_its_use_and_empty_tables_are_left_out() {
        let node = Node {
            node_id: 7,
            instance: "a1b2".into(),
            labels: [("zone".to_owned(), "b".to_owned()), ("gpu".to_owned(), String::new())].into(),
            versions: Some(NodeVersions {
                daemon: "0.1.0".into(),
                engine: "20.10.24".into(),
                kernel: "6.1".into(),
                api: "cofferdam.v1".into(),
                architecture: "x86_64".into(),
            }),
            state: State::Draining.into(),
            drain: Some(NodeDrain {
                reason: "a new\u{1b}[31m kernel".into(),
                principal: "uid:0".into(),
                deadline: None,
            }),
            capacity: Some(NodeAmounts { runs: 256, memory_mib: 0, cpu_millis: 16_000, disk_mib: 51_200 }),
            used: Some(NodeAmounts { runs: 2, memory_mib: 1_536, cpu_millis: 500, disk_mib: 0 }),
            images: vec![NodeImage { reference: "tools:1".into(), image_id: "sha256:ab".into() }],
            pools: vec![NodePool { name: "build/".into(), waiting: 1, wanted: 2 }],
            ..Node::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&node, &mut page);
        let shown = page.as_str();
        for line in [
            "node      7\n",
            "state     DRAINING\n",
            "labels    gpu=, zone=b\n",
            "kernel    6.1 x86_64\n",
            "creates   any number\n",
            "runs      2",
            "memory    1.5 GiB",
            "not known",
            "0.500",
            "tools:1",
            "build/",
        ] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        assert!(
            !shown.contains('\u{1b}') && !shown.contains("BASE") && !shown.contains("runs end"),
            "{shown}"
        );
    }
}
