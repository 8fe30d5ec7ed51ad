//! Serves the MCP endpoint over HTTP, in front of the daemon's own services.
//!
//! The endpoint is a client like any other. Each of its calls passes the guard of the API, so it can do only what the
//! tokens of its clients open. It runs inside the daemon only to save operators a second process.

use std::pin::Pin;
use std::sync::Arc;

use admission::Owner;
use anyhow::Context as _;
use audit_service::Attempt;
use calls::Calls;
use identity::Principal;
use listener::GuardLayer;
use mcp::http::Door;
use mcp::{Api, RunToken};
use tokio::net::TcpListener;

use crate::config::Http;
use crate::rpc;

/// Target that the record of a bad token names.
const TARGET: &str = "MCP over HTTP";

struct Front {
    calls: Arc<Calls>,
    guard: GuardLayer,
}

impl Door for Front {
    fn opens(&self, token: &RunToken) -> Option<Vec<Owner>> {
        let shown = self.calls.runs.of_token(token.reveal())?;
        Some(Owner::of_run_token(shown.run, shown.principal))
    }

    fn replaced(&self, token: &RunToken) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match self.calls.runs.of_token(token.reveal()) {
            Some(shown) => Box::pin(shown.replaced()),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn turned_away(&self, shown: Option<&RunToken>) {
        // Clients whose run has ended come back a few times with its token, which was valid before.
        if shown.is_some_and(|token| self.calls.runs.is_former_token(token.reveal())) {
            return;
        }
        self.calls.escalations.report(&Principal::anonymous(), None, Attempt::BadToken, TARGET);
    }

    fn api(&self) -> Api {
        mcp::api(rpc::tools(self.calls.clone(), &self.guard))
    }
}

/// Starts the endpoint if the configuration has one. It serves until the daemon stops.
///
/// The stop waits for it, which takes a second at most.
pub(crate) async fn start(calls: &Arc<Calls>, guard: &GuardLayer, http: Option<&Http>) -> anyhow::Result<()> {
    let Some(Http { address, settings, .. }) = http else { return Ok(()) };
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address} for MCP"))?;
    tracing::info!("MCP over HTTP: http://{}/mcp", listener.local_addr()?);
    let front = Arc::new(Front { calls: calls.clone(), guard: guard.clone() });
    calls.tasks.spawn(mcp::http::serve(listener, front, settings.clone(), calls.stop.clone()));
    Ok(())
}
