//! Serves the MCP endpoint over HTTP, in front of the daemon's own services.
//!
//! The endpoint is a client like any other. Each of its calls passes the guard of the API, so it can do only what the
//! tokens of its clients open. It runs inside the daemon only to save operators a second process.

use std::sync::Arc;

use admission::Owner;
use anyhow::Context as _;
use audit_service::{Attempt, Escalations};
use identity::Principal;
use listener::GuardLayer;
use mcp::http::{Access, Opened};
use runs::Runs;
use take_over::Listeners;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Http;
use crate::rpc::{self, tool};

/// Target that the record of a bad token names.
const TARGET: &str = "MCP over HTTP";

/// Returns the access of clients: what a token opens, the record of one that opens nothing, and the tools.
pub(crate) fn access(
    runs: Arc<Runs>,
    escalations: Arc<Escalations>,
    tools: tool::Service,
    guard: &GuardLayer,
) -> Access {
    let opening = runs.clone();
    Access {
        api: mcp::api(rpc::tools(tools, guard)),
        opens: Box::new(move |token| {
            let shown = opening.of_token(token.reveal())?;
            let owners = Owner::of_run_token(shown.run, shown.principal.clone());
            Some(Opened { owners, replaced: Box::pin(shown.replaced()) })
        }),
        turned_away: Box::new(move |shown| {
            // Clients whose run has ended come back a few times with its token, which was valid before.
            if shown.is_some_and(|token| runs.is_retired_token(token.reveal())) {
                return;
            }
            escalations.report(&Principal::anonymous(), None, Attempt::BadToken, TARGET);
        }),
    }
}

/// Starts the endpoint if the configuration has one. It serves until the daemon stops.
///
/// The stop waits for it, which takes a second at most.
pub(crate) async fn start(
    access: Access,
    http: Option<&Http>,
    listeners: &Listeners,
    (tasks, stop): (&TaskTracker, CancellationToken),
) -> anyhow::Result<()> {
    let Some(Http { address, settings, .. }) = http else { return Ok(()) };
    let listener = listeners
        .tcp("mcp", *address)
        .await
        .with_context(|| format!("cannot listen on {address} for MCP"))?;
    tracing::info!("MCP over HTTP: http://{}/mcp", listener.local_addr()?);
    tasks.spawn(mcp::http::serve(listener, access, settings.clone(), stop));
    Ok(())
}
