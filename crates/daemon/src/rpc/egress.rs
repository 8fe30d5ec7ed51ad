//! Serves `EgressService`.

use std::pin::Pin;
use std::sync::Arc;

use egress::{Connection, ModelTokens, Phase, Refused, Update};
use futures_util::{Stream, StreamExt as _, stream};
use identity::{Principal, RunId};
use refusal::Refusal;
use runs::{Run, Runs, no_way_out};
use tokio_stream::wrappers::BroadcastStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wire::v1;
use wire::v1::connection::Phase as WirePhase;
use wire::v1::egress_service_server::EgressService;
use wire::v1::watch_connections_response::Update as WireUpdate;

use super::{behind, principal, whole_or_stopped};

pub(crate) struct Service {
    pub(crate) runs: Arc<Runs>,
    pub(crate) stop: CancellationToken,
}

impl Service {
    /// Returns a live run that the principal may see.
    fn run(&self, principal: &Principal, id: &str) -> Result<Arc<Run>, Refusal> {
        let id = RunId::parse(id)?;
        self.runs.shown_to(id, principal)?;
        self.runs.living_run(id)
    }
}

/// Returns the rules and counts of a run's connections; `None` if it has no way out.
pub(super) fn egress(run: &Run) -> Option<Result<v1::Egress, Refusal>> {
    let egress = run.egress()?;
    let rules = egress.rules();
    let counts = egress.view().counts();
    let digest = rules.digest().map_err(|error| Refusal::internal("the digest of the rules", &error));
    Some(digest.map(|digest| v1::Egress {
        digest,
        words: rules.words(),
        open_connections: counts.open,
        ended_connections: counts.ended,
        refused_names: counts.refused_names,
        refused_connections: counts.refused_connections,
        bytes_out: counts.bytes_out,
        bytes_in: counts.bytes_in,
    }))
}

/// Returns the hosts and companions that a run can reach, in words; `None` if it has no way out.
pub(super) fn network(run: &Run) -> Option<String> {
    let (rules, companions) = (run.egress()?.rules().words(), run.companions().words());
    Some(if companions.is_empty() { rules } else { format!("{rules}\n{companions}") })
}

#[tonic::async_trait]
impl EgressService for Service {
    async fn get_egress(
        &self,
        request: Request<v1::GetEgressRequest>,
    ) -> Result<Response<v1::GetEgressResponse>, Status> {
        let run = self.run(&*principal(&request)?, &request.get_ref().run_id)?;
        Ok(Response::new(v1::GetEgressResponse { egress: Some(of(&run)?) }))
    }

    type WatchConnectionsStream =
        Pin<Box<dyn Stream<Item = Result<v1::WatchConnectionsResponse, Status>> + Send>>;

    async fn watch_connections(
        &self,
        request: Request<v1::WatchConnectionsRequest>,
    ) -> Result<Response<Self::WatchConnectionsStream>, Status> {
        let run = self.run(&*principal(&request)?, &request.get_ref().run_id)?;
        let egress = run.egress().ok_or_else(no_way_out)?;
        let (connections, refused, later) = egress.view().follow();
        let connections = connections.into_iter().map(|connection| Update::Connection(Box::new(connection)));
        let now =
            connections.chain(refused.into_iter().map(Update::Refused)).map(|update| Ok(to_wire(update)));
        let now = stream::iter(now.collect::<Vec<_>>());
        if !request.get_ref().follow {
            return Ok(Response::new(Box::pin(now)));
        }
        let later = BroadcastStream::new(later).map(|update| update.map(to_wire).map_err(|_| behind()));
        let over = run.ended.clone().cancelled_owned();
        // Its end says that the run has ended.
        Ok(Response::new(whole_or_stopped(now.chain(later.take_until(over)), &self.stop)))
    }

    async fn narrow_egress(
        &self,
        request: Request<v1::NarrowEgressRequest>,
    ) -> Result<Response<v1::NarrowEgressResponse>, Status> {
        let principal = principal(&request)?;
        let v1::NarrowEgressRequest { run_id, egress_json } = request.into_inner();
        let id = RunId::parse(&run_id)?;
        self.runs.check_use(id, &principal)?;
        self.runs.narrow_egress(id, &egress_json, &principal.name).await?;
        let run = self.runs.living_run(id)?;
        Ok(Response::new(v1::NarrowEgressResponse { egress: Some(of(&run)?) }))
    }

    async fn widen_egress(
        &self,
        request: Request<v1::WidenEgressRequest>,
    ) -> Result<Response<v1::WidenEgressResponse>, Status> {
        let principal = principal(&request)?;
        let v1::WidenEgressRequest { run_id, egress_json } = request.into_inner();
        let id = RunId::parse(&run_id)?;
        self.runs.widen_egress(id, &egress_json, &principal.name).await?;
        let run = self.runs.living_run(id)?;
        Ok(Response::new(v1::WidenEgressResponse { egress: Some(of(&run)?) }))
    }
}

/// Returns the rules and counts of a run, which must have a way out.
fn of(run: &Run) -> Result<v1::Egress, Refusal> {
    egress(run).ok_or_else(no_way_out)?
}

fn to_wire(update: Update) -> v1::WatchConnectionsResponse {
    let update = match update {
        Update::Connection(connection) => WireUpdate::Connection(connection_to_wire(*connection)),
        Update::Refused(refused) => WireUpdate::Refused(refused_to_wire(refused)),
    };
    v1::WatchConnectionsResponse { update: Some(update) }
}

fn connection_to_wire(connection: Connection) -> v1::Connection {
    let (phase, end) = match connection.phase {
        Phase::Open => (WirePhase::Open, ""),
        Phase::Waiting => (WirePhase::Waiting, ""),
        Phase::Ended(cause) => (WirePhase::Ended, cause),
    };
    let took = connection.ended_at.map(|ended| connection.opened_at.until(ended));
    let requests = connection.requests.into_iter().map(|request| v1::HttpRequest {
        method: request.method,
        path: request.path,
        status: request.status,
        number: request.number,
    });
    v1::Connection {
        connection_id: connection.id,
        host: connection.host,
        port: connection.port.into(),
        scheme: connection.scheme,
        rule: connection.rule,
        phase: phase.into(),
        end: end.to_owned(),
        server_name: connection.server_name,
        address: connection.address.map(|address| address.to_string()).unwrap_or_default(),
        bytes_out: connection.bytes_out,
        bytes_in: connection.bytes_in,
        requests: requests.collect(),
        opened_at: Some(connection.opened_at.to_wire()),
        duration: took.and_then(|took| took.try_into().ok()),
        call_ids: connection.calls,
        opened: connection.opened,
        injected: connection.injected,
        upstream: connection.upstream,
        usage: connection.usage.into_iter().map(tokens_to_wire).collect(),
        companion: connection.companion,
    }
}

fn tokens_to_wire(tokens: ModelTokens) -> v1::ConnectionUsage {
    v1::ConnectionUsage {
        model: tokens.model,
        requests: tokens.requests,
        unreported_requests: tokens.unreported,
        input_tokens: tokens.input,
        output_tokens: tokens.output,
        cached_input_tokens: tokens.cached_input,
        cache_write_tokens: tokens.cache_write,
    }
}

fn refused_to_wire(refused: Refused) -> v1::RefusedHost {
    v1::RefusedHost {
        host: refused.host,
        port: refused.port.into(),
        rule: refused.rule,
        reason: refused.why,
        count: refused.count,
        last_at: Some(refused.last_at.to_wire()),
        companion: refused.companion,
    }
}
