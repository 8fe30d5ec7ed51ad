//! Serves the API: takes the identity from the connection, bounds and decodes messages, and turns refusals into
//! statuses.

pub(crate) mod alert;
pub(crate) mod approval;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod base;
pub(crate) mod checkpoint;
pub(crate) mod companion_log;
pub(crate) mod console;
pub(crate) mod daemon;
pub(crate) mod egress;
mod explain;
pub(crate) mod file;
pub(crate) mod forward;
pub(crate) mod host;
pub(crate) mod image;
pub(crate) mod limit;
mod metadata;
mod offered;
mod operation;
pub(crate) mod passkey;
pub(crate) mod permission;
pub(crate) mod policy;
mod portion;
pub(crate) mod process;
pub(crate) mod push;
pub(crate) mod run;
pub(crate) mod session;
mod signing;
pub(crate) mod terminal;
pub(crate) mod token;
pub(crate) mod tool;
pub(crate) mod trash;
mod upstreams;
pub(crate) mod usage;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt as _, stream};
use identity::{Principal, RunId};
use listener::{GuardLayer, Socket, Tcp};
use node::Nodes;
use operations::Reason;
use readiness::Seen;
use refusal::Refusal;
use runs::Runs;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService as _;
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tower::{Layer as _, Service};
use wire::v1::alert_service_server::AlertServiceServer;
use wire::v1::approval_service_server::ApprovalServiceServer;
use wire::v1::audit_service_server::AuditServiceServer;
use wire::v1::backup_service_server::BackupServiceServer;
use wire::v1::base_service_server::BaseServiceServer;
use wire::v1::checkpoint_service_server::CheckpointServiceServer;
use wire::v1::console_service_server::ConsoleServiceServer;
use wire::v1::daemon_service_server::DaemonServiceServer;
use wire::v1::egress_service_server::EgressServiceServer;
use wire::v1::file_service_server::FileServiceServer;
use wire::v1::forward_service_server::ForwardServiceServer;
use wire::v1::host_service_server::HostServiceServer;
use wire::v1::image_service_server::ImageServiceServer;
use wire::v1::limit_service_server::LimitServiceServer;
use wire::v1::node_service_server::NodeServiceServer;
use wire::v1::passkey_service_server::PasskeyServiceServer;
use wire::v1::permission_service_server::PermissionServiceServer;
use wire::v1::policy_service_server::PolicyServiceServer;
use wire::v1::process_service_server::ProcessServiceServer;
use wire::v1::push_service_server::PushServiceServer;
use wire::v1::run_service_server::RunServiceServer;
use wire::v1::session_service_server::SessionServiceServer;
use wire::v1::terminal_service_server::TerminalServiceServer;
use wire::v1::token_service_server::TokenServiceServer;
use wire::v1::tool_service_server::ToolServiceServer;
use wire::v1::trash_service_server::TrashServiceServer;
use wire::v1::usage_service_server::UsageServiceServer;

/// Name under which the health service reports the daemon as a whole.
const READINESS: &str = "";
/// Name under which it reports that the daemon executes requests. It always does when it answers.
const LIVENESS: &str = "liveness";
/// Name under which it reports that the daemon makes runs. Balancers ask for it before they send a CreateRun.
const CREATION: &str = "cofferdam.create";
/// Largest request and answer, bytes.
const MAX_MESSAGE: usize = operations::transport::MESSAGE;
/// Maximum number of streams of one connection. tonic's default removes hyper's limit.
const MAX_STREAMS: u32 = 64;
/// Number of bytes of one stream that a client may send ahead.
///
/// With h2's default of 64 KiB, an upload would wait for the daemon after every fourth frame.
const STREAM_WINDOW: u32 = 1024 * 1024;
/// Number of bytes of all streams of a connection that a client may send ahead.
const CONNECTION_WINDOW: u32 = 2 * STREAM_WINDOW;
/// Maximum size of the header list of one request, bytes.
const MAX_HEADERS: u32 = 16 * 1024;
/// Maximum number of streams that a peer may reset before the connection is closed (CVE-2023-44487, rapid reset).
const MAX_RESETS: usize = 32;
/// Maximum number of streams of a connection, over its whole life, that are reset because of what the peer sent
/// (CVE-2025-8671).
///
/// This is h2's default. A request that is refused before it was sent completely counts too, and a long connection has
/// many of those.
const MAX_ERRORS: usize = 1_024;

macro_rules! capped {
    ($server:ident, $service:expr) => {
        $server::new($service).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
    };
}

/// Returns the tool service for clients within this process, protected by the same guard.
///
/// They present a run's token, or get no access: see [`Principal::anonymous`].
pub(crate) fn tools(
    service: tool::Service,
    guard: &GuardLayer,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let mut routes = RoutesBuilder::default();
    routes.add_service(capped!(ToolServiceServer, service));
    guard.layer(routes.routes())
}

/// Returns all services for clients within this process, protected by the same guard.
///
/// A request without a [`listener::Peer`] and without a token gets no access.
pub(crate) fn guarded(
    routes: Routes,
    guard: &GuardLayer,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    guard.layer(routes)
}

/// The services of the API.
pub(crate) struct Services {
    pub(crate) run: run::Service,
    pub(crate) base: base::Service,
    pub(crate) checkpoint: checkpoint::Service,
    pub(crate) tool: tool::Service,
    pub(crate) process: process::Service,
    pub(crate) session: session::Service,
    pub(crate) file: file::Service,
    pub(crate) approval: approval::Service,
    pub(crate) audit: audit::Service,
    pub(crate) backup: backup::Service,
    pub(crate) policy: policy::Service,
    pub(crate) alert: alert::Service,
    pub(crate) permission: permission::Service,
    pub(crate) limit: limit::Service,
    pub(crate) terminal: terminal::Service,
    pub(crate) trash: trash::Service,
    pub(crate) host: host::Service,
    pub(crate) image: image::Service,
    pub(crate) token: token::Service,
    pub(crate) egress: egress::Service,
    pub(crate) forward: forward::Service,
    pub(crate) usage: usage::Service,
    pub(crate) daemon: daemon::Service,
    pub(crate) passkey: passkey::Service,
    pub(crate) push: push::Service,
    pub(crate) console: console::Service,
    pub(crate) node: Nodes,
}

/// All services, ready to be served.
pub(crate) struct Served {
    pub(crate) routes: Routes,
    reporter: HealthReporter,
    seen: watch::Receiver<Seen>,
    service: watch::Receiver<node::Service>,
    stop: CancellationToken,
}

/// Serves the API until the daemon stops.
///
/// No connection is accepted after `closing`, and clients are asked to connect anew. Their calls go on.
pub(crate) async fn serve(
    served: Served,
    socket: Socket,
    tcp: Option<Tcp>,
    guard: GuardLayer,
    closing: CancellationToken,
) {
    if let Err(error) = try_serve(served, socket, tcp, guard, closing).await {
        tracing::error!(error = %error, "the API ended");
    }
}

/// Makes the routes of all services.
pub(crate) fn served(services: Services) -> anyhow::Result<Served> {
    let (seen, stop) = (services.daemon.readiness.seen(), services.audit.stop.clone());
    let service = services.node.0.gate().service();
    let (reporter, health) = tonic_health::server::health_reporter();
    let mut routes = RoutesBuilder::default();
    routes.add_service(health);
    routes.add_service(
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            // Lets clients decode the details of a refusal.
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .build_v1()?,
    );
    routes.add_service(
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(wire::DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
            .build_v1alpha()?,
    );
    routes.add_service(capped!(RunServiceServer, services.run));
    routes.add_service(capped!(BaseServiceServer, services.base));
    routes.add_service(capped!(CheckpointServiceServer, services.checkpoint));
    routes.add_service(capped!(ToolServiceServer, services.tool));
    routes.add_service(capped!(ProcessServiceServer, services.process));
    routes.add_service(capped!(SessionServiceServer, services.session));
    routes.add_service(capped!(FileServiceServer, services.file));
    routes.add_service(capped!(ApprovalServiceServer, services.approval));
    routes.add_service(capped!(AuditServiceServer, services.audit));
    routes.add_service(capped!(BackupServiceServer, services.backup));
    routes.add_service(capped!(PolicyServiceServer, services.policy));
    routes.add_service(capped!(AlertServiceServer, services.alert));
    routes.add_service(capped!(PermissionServiceServer, services.permission));
    routes.add_service(capped!(LimitServiceServer, services.limit));
    routes.add_service(capped!(TerminalServiceServer, services.terminal));
    routes.add_service(capped!(TrashServiceServer, services.trash));
    routes.add_service(capped!(HostServiceServer, services.host));
    routes.add_service(capped!(TokenServiceServer, services.token));
    routes.add_service(capped!(ImageServiceServer, services.image));
    routes.add_service(capped!(EgressServiceServer, services.egress));
    routes.add_service(capped!(ForwardServiceServer, services.forward));
    routes.add_service(capped!(UsageServiceServer, services.usage));
    routes.add_service(capped!(DaemonServiceServer, services.daemon));
    routes.add_service(capped!(PasskeyServiceServer, services.passkey));
    routes.add_service(capped!(PushServiceServer, services.push));
    routes.add_service(capped!(ConsoleServiceServer, services.console));
    routes.add_service(capped!(NodeServiceServer, services.node));
    Ok(Served { routes: routes.routes(), reporter, seen, service, stop })
}

async fn try_serve(
    served: Served,
    socket: Socket,
    tcp: Option<Tcp>,
    guard: GuardLayer,
    closing: CancellationToken,
) -> anyhow::Result<()> {
    let Served { routes, reporter, mut seen, mut service, stop } = served;
    reporter.set_service_status(LIVENESS, ServingStatus::Serving).await;
    say_health(&reporter, &mut seen, &mut service).await;
    // Ends after `closing`. The clients of connections that are there by then are told to connect anew.
    let incoming = listener::incoming(socket, tcp, closing);
    tokio::spawn(async move {
        loop {
            let changed = async {
                tokio::select! { changed = seen.changed() => changed, changed = service.changed() => changed }
            };
            let Some(Ok(())) = stop.run_until_cancelled(changed).await else { return };
            say_health(&reporter, &mut seen, &mut service).await;
        }
    });

    Server::builder()
        .layer(guard)
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(listener::MAX_FRAME)
        .http2_max_header_list_size(MAX_HEADERS)
        .http2_max_pending_accept_reset_streams(Some(MAX_RESETS))
        .http2_max_local_error_reset_streams(Some(MAX_ERRORS))
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .http2_keepalive_timeout(Some(Duration::from_secs(20)))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, std::future::pending())
        .await?;
    Ok(())
}

/// Reports if calls are admitted, for each service, if the daemon as a whole is ready, and if it makes runs.
async fn say_health(
    reporter: &HealthReporter,
    seen: &mut watch::Receiver<Seen>,
    service: &mut watch::Receiver<node::Service>,
) {
    let seen = *seen.borrow_and_update();
    let is_drained = service.borrow_and_update().drain.is_some();
    let status = |serving| if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
    let names = [
        RunServiceServer::<run::Service>::NAME,
        BaseServiceServer::<base::Service>::NAME,
        CheckpointServiceServer::<checkpoint::Service>::NAME,
        ToolServiceServer::<tool::Service>::NAME,
        ProcessServiceServer::<process::Service>::NAME,
        SessionServiceServer::<session::Service>::NAME,
        FileServiceServer::<file::Service>::NAME,
        ApprovalServiceServer::<approval::Service>::NAME,
        AuditServiceServer::<audit::Service>::NAME,
        BackupServiceServer::<backup::Service>::NAME,
        PolicyServiceServer::<policy::Service>::NAME,
        AlertServiceServer::<alert::Service>::NAME,
        PermissionServiceServer::<permission::Service>::NAME,
        LimitServiceServer::<limit::Service>::NAME,
        TerminalServiceServer::<terminal::Service>::NAME,
        TrashServiceServer::<trash::Service>::NAME,
        HostServiceServer::<host::Service>::NAME,
        TokenServiceServer::<token::Service>::NAME,
        ImageServiceServer::<image::Service>::NAME,
        EgressServiceServer::<egress::Service>::NAME,
        ForwardServiceServer::<forward::Service>::NAME,
        UsageServiceServer::<usage::Service>::NAME,
        DaemonServiceServer::<daemon::Service>::NAME,
        PasskeyServiceServer::<passkey::Service>::NAME,
        PushServiceServer::<push::Service>::NAME,
        ConsoleServiceServer::<console::Service>::NAME,
        NodeServiceServer::<Nodes>::NAME,
    ];
    for name in names {
        reporter.set_service_status(name, status(seen.log)).await;
    }
    reporter.set_service_status(READINESS, status(seen.is_ready())).await;
    reporter.set_service_status(CREATION, status(seen.is_ready() && !is_drained)).await;
}

/// Returns the principal that the guard has identified.
fn principal<T>(request: &tonic::Request<T>) -> Result<Arc<Principal>, Refusal> {
    let named = request.extensions().get::<Arc<Principal>>().cloned();
    named.ok_or_else(|| Refusal::new(Reason::PermissionDenied, "the connection has no principal"))
}

/// Refuses a search by a run that another node made and that is not here: nothing found would look like nothing to find.
fn check_home(runs: &Runs, principal: &Principal, run_id: &str) -> Result<(), Refusal> {
    match RunId::parse(run_id).and_then(|id| runs.shown_to(id, principal)) {
        Err(refusal) if refusal.is_of_another_node() => Err(refusal),
        _ => Ok(()),
    }
}

/// Returns the status for a watcher that was too slow for the stream of changes.
fn behind() -> Status {
    Refusal::new(Reason::Overloaded, "the watcher is too slow and has missed changes: watch again").into()
}

/// Ends a stream with a refusal if the daemon stops first, so that no client takes a part for the whole.
///
/// A watch that never ends by itself needs none: its clients expect each end, and connect again.
fn whole_or_stopped<T: Send + 'static>(
    stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
    stop: &CancellationToken,
) -> Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>> {
    let open = Some((Box::pin(stream), stop.clone()));
    Box::pin(stream::unfold(open, |open| async move {
        let (mut stream, stop) = open?;
        match stop.run_until_cancelled(stream.next()).await {
            Some(Some(item)) => Some((item, Some((stream, stop)))),
            // A task that stops with the daemon ends its stream as well.
            Some(None) if !stop.is_cancelled() => None,
            Some(None) | None => {
                let message = "the daemon is stopping: this is not all, ask again after its start";
                Some((Err(Refusal::new(Reason::DaemonStopping, message).into()), None))
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(
        mut stream: Pin<Box<dyn Stream<Item = Result<u32, Status>> + Send>>,
    ) -> Vec<Result<u32, String>> {
        let mut all = Vec::new();
        while let Some(item) = stream.next().await {
            all.push(item.map_err(|status| status.message().to_owned()));
        }
        all
    }

    #[tokio::test]
    async fn a_stream_that_a_stop_cuts_is_not_whole() {
        let stop = CancellationToken::new();
        assert_eq!(read(whole_or_stopped(stream::iter([Ok(1), Ok(2)]), &stop)).await, [Ok(1), Ok(2)]);

        let cut = whole_or_stopped(stream::iter([Ok(1)]).chain(stream::pending()), &stop);
        // Ends with the daemon, like the streams of tasks.
        let ending = stop.clone().cancelled_owned();
        let ended =
            whole_or_stopped(stream::iter([Ok(1)]).chain(stream::pending().take_until(ending)), &stop);
        let stopping = async {
            tokio::task::yield_now().await;
            stop.cancel();
        };
        let (cut, ended, ()) = tokio::join!(read(cut), read(ended), stopping);
        for read in [cut, ended] {
            assert_eq!(read.len(), 2, "{read:?}");
            assert_eq!(read[0], Ok(1));
            assert!(read[1].as_ref().is_err_and(|message| message.contains("not all")), "{read:?}");
        }
    }
}
