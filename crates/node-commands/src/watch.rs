//! `coffer node watch`.

use clap::Args;
use command_context::client::Context;
use presentation::exit::Exit;
use presentation::failure::Ended;
use presentation::output::Output;
use wire::v1::{Node, WatchNodeRequest};

use crate::present;

/// Print the node now and after each change, at most once a second.
#[derive(Args, Debug)]
#[command(before_help = "Example: coffer node watch --output json")]
pub struct Watch {}

impl Watch {
    pub(crate) async fn run(self, context: &Context) -> Ended {
        let client = context.connect().await?;
        let mut changes = client.node().watch_node(WatchNodeRequest {}).await?.into_inner();
        while let Some(change) = changes.message().await? {
            context.ui.answer_line(&present(change.node)?, render)?;
        }
        Ok(Exit::Ok)
    }
}

/// Prints a node on one line.
pub(crate) fn render(node: &Node, page: &mut Output) {
    let used = node.used.unwrap_or_default();
    let waiting: u64 = node.pools.iter().map(|pool| u64::from(pool.waiting)).sum();
    // Through a balancer any node can have answered.
    if node.node_id != 0 {
        page.own("node ").word(&node.node_id.to_string()).own(" ");
    }
    page.word(node.state().as_str_name()).own(": ");
    page.word(&presentation::quantity::count(used.runs, "run or companion", "runs and companions"));
    page.own(", ").word(&format!("{} MiB, {} thousandths of a core", used.memory_mib, used.cpu_millis));
    page.own(", ").word(&waiting.to_string()).own(" warm");
    if let Some(drain) = &node.drain {
        page.own(" (").word(&drain.reason).own(")");
    }
    page.own("\n");
}

#[cfg(test)]
mod tests {
    use presentation::output::Look;
    use wire::v1::node::State;
    use wire::v1::{NodeAmounts, NodeDrain};

    use super::*;

    #[test]
    fn a_line_a_change() {
        let node = Node {
            state: State::Draining.into(),
            used: Some(NodeAmounts { runs: 1, memory_mib: 136, cpu_millis: 500, disk_mib: 64 }),
            drain: Some(NodeDrain { reason: "a new kernel".into(), ..NodeDrain::default() }),
            ..Node::default()
        };
        let mut page = Output::new(Look::PIPE);
        render(&node, &mut page);
        let line =
            "DRAINING: 1 run or companion, 136 MiB, 500 thousandths of a core, 0 warm (a new kernel)\n";
        assert_eq!(page.as_str(), line);
        let mut page = Output::new(Look::PIPE);
        render(&Node { node_id: 7, ..node }, &mut page);
        assert_eq!(page.as_str(), format!("node 7 {line}"));
    }
}
