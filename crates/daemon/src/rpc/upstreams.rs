//! Adds the tools of upstream MCP servers to an agent's list of tools.

use calls::Upstreams;
use dialects::{Format, UpstreamTool};
use futures_util::future::join_all;
use identity::RunId;
use refusal::Refusal;
use runs::Runs;
use serde_json::Value;
use wire::v1;

use super::offered::Offered;

/// Tools that the agent may call, and the state of each server.
pub(super) struct Upstream {
    tools: Vec<UpstreamTool>,
    pub(super) servers: Vec<v1::McpServerStatus>,
}

impl Upstream {
    /// Returns the entries in a vendor's format.
    ///
    /// `taken` returns true for the names of the dialect's own tools, which no alias may hide.
    pub(super) fn entries(
        &self,
        format: Format,
        taken: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = Value> {
        self.tools.iter().filter_map(move |tool| {
            let alias = tool.alias.clone().filter(|alias| !taken(alias));
            UpstreamTool { alias, ..tool.clone() }.entry(format)
        })
    }
}

/// Asks all servers at the same time. A server that is not available is reported, and hides none of the others.
pub(super) async fn offer(runs: &Runs, upstreams: &Upstreams, run: RunId, offered: &Offered) -> Upstream {
    let mut upstream = Upstream { tools: Vec::new(), servers: Vec::new() };
    let servers: Vec<_> = offered.servers().collect();
    let found = async {
        let run = runs.living_run(run)?;
        let lanes = run.lanes_resumed().await?;
        Ok::<_, Refusal>((run, lanes))
    };
    let (run, lanes) = match found.await {
        Ok(found) => found,
        Err(refusal) => {
            upstream.servers.extend(servers.into_iter().map(|(name, _)| v1::McpServerStatus {
                name: name.to_owned(),
                problem: refusal.message.clone(),
                ..Default::default()
            }));
            return upstream;
        }
    };
    let asked = servers.into_iter().map(|(name, server)| {
        let (run, lanes) = (&run, &lanes);
        async move { (name, upstreams.offer(run, lanes, name, server).await) }
    });
    for (name, offer) in join_all(asked).await {
        let mut status = v1::McpServerStatus { name: name.to_owned(), ..Default::default() };
        match offer {
            Ok(offer) => {
                status.available = true;
                status.withheld = offer.withheld;
                let permitted = offer.tools.into_iter().filter(|tool| offered.permits(tool.id.canonical()));
                let permitted: Vec<_> = permitted.collect();
                let digests = permitted.iter().map(|tool| (tool.id.tool().to_owned(), tool.digest.clone()));
                status.definitions = digests.collect();
                upstream.tools.extend(permitted.into_iter().map(|tool| UpstreamTool {
                    alias: offered.alias(&tool.id).map(str::to_owned),
                    tool: tool.id.clone(),
                    description: tool.description.clone(),
                    input_schema: tool.input_schema.clone(),
                }));
            }
            Err(problem) => status.problem = problem,
        }
        upstream.servers.push(status);
    }
    upstream
}
