//! Serves the MCP endpoint over HTTP, in front of the daemon's own services.
//!
//! The endpoint is a client like any other. Each of its calls passes the guard of the API, so it can do only what the
//! tokens of its clients open. It runs inside the daemon only to save operators a second process.

use std::pin::Pin;
use std::sync::Arc;

use admission::Owner;
use anyhow::Context as _;
use audit_service::{Attempt, Escalations};
use identity::Principal;
use listener::GuardLayer;
use mcp::http::Door;
use mcp::{Api, RunToken};
use runs::Runs;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Http;
use crate::rpc::{self, tool};

/// Target that the record of a bad token names.
const TARGET: &str = "MCP over HTTP";

pub(crate) struct Front {
    pub(crate) runs: Arc<Runs>,
    pub(crate) escalations: Arc<Escalations>,
    pub(crate) tools: tool::Service,
    pub(crate) guard: GuardLayer,
}

impl Door for Front {
    fn opens(&self, token: &RunToken) -> Option<Vec<Owner>> {
        let shown = self.runs.of_token(token.reveal())?;
        Some(Owner::of_run_token(shown.run, shown.principal))
    }

    fn replaced(&self, token: &RunToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self.runs.of_token(token.reveal()) {
            Some(shown) => Box::pin(shown.replaced()),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn turned_away(&self, shown: Option<&RunToken>) {
        // Clients whose run has ended come back a few times with its token, which was valid before.
        if shown.is_some_and(|token| self.runs.is_retired_token(token.reveal())) {
            return;
        }
        self.escalations.report(&Principal::anonymous(), None, Attempt::BadToken, TARGET);
    }

    fn api(&self) -> Api {
        mcp::api(rpc::tools(self.tools.clone(), &self.guard))
    }
}

/// Starts the endpoint if the configuration has one. It serves until the daemon stops.
///
/// The stop waits for it, which takes a second at most.
pub(crate) async fn start(
    front: Front,
    http: Option<&Http>,
    (tasks, stop): (&TaskTracker, CancellationToken),
) -> anyhow::Result<()> {
    let Some(Http { address, settings, .. }) = http else { return Ok(()) };
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} for MCP"))?;
    tracing::info!("MCP over HTTP: http://{}/mcp", listener.local_addr()?);
    tasks.spawn(mcp::http::serve(listener, Arc::new(front), settings.clone(), stop));
    Ok(())
}
