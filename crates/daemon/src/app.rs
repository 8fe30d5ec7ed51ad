//! The daemon, put together: start in order, serve, stop in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anomaly::Alerts;
use anyhow::Context as _;
use audit::{Event, Kind};
use audit_service::{AuditLog, Index, LAST_WAIT, Maintenance};
use calls::grants::Grants;
use calls::limits::Limits;
use calls::{Approvals, CallTable, Calls, Escalations, FormerApprovals, Replays, Upstreams};
use containers::{DefaultImage, EngineFacts};
use gateway::{Gateway, Policy};
use identity::{Access, RunId};
use oidc::Issuers;
use processes::Processes;
use refusal::chain;
use runs::{
    ColdStarts, Directories, DiskWatch, Launcher, Pool, Projects, Quotas, Roots, Runs, Turns, Uploads,
    execution_log,
};
use store::spool::Spool;
use store::{StateDisk, Store, StoreError};
use timestamp::SystemClock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook::Tls;

use crate::bundle::Bundles;
use crate::config::{self, Config, DEFAULT_LIFETIME, DEFAULT_STREAMS, Tcp};
use crate::images::Images;
use crate::policy::{self, Loader};
use crate::recovery::{self, RecoveryCursor};
use crate::rpc::{self, Certificates, GuardLayer, Services, Socket};
use crate::startup::Prepared;
use crate::terminal::{self, Sessions, Terminals};
use crate::tokens::Tokens;
use crate::{mcp, memory, startup};

/// Longest that an orderly stop may take.
const STOP: Duration = Duration::from_secs(60);

/// For clients that do not hang up when the daemon stops.
const GOODBYE: Duration = Duration::from_secs(2);

/// Runs the daemon until it is told to stop.
pub(crate) async fn run(
    config: Config,
    file: PathBuf,
    workers: usize,
    prepared: Prepared,
) -> anyhow::Result<()> {
    let Prepared { state, disk, programs } = prepared;
    startup::kernel(&config, programs.host_worker).await?;
    let policy = startup::policy(&config)?;
    let (engine, host) = startup::engine(&config).await?;
    let directories = Directories { state: config.state_dir.clone() };
    let (default_image, image) = startup::default_image(&engine, &config).await;

    let (log, _, writer) = AuditLog::open(&config.state_dir.join("audit"), config.audit_settings())
        .map_err(|error| anyhow::anyhow!("the audit log: {}", chain(&error)))?;
    let audit = Arc::new(log.on(disk.follow()));
    let index = audit.index().context("cannot start the audit log's index")?;
    let hooks = tokio::spawn(config.audit.hooks.open()?.run(audit.checkpoints()));
    let store = Store::open(&config.state_dir.join("store.db"), config.outcomes).map_err(broken_store)?;
    let open = recovery::look(&audit, &store, &store.living_runs().map_err(broken_store)?).await?;
    let former_approvals = FormerApprovals::read(&store, &audit).await?;
    record_start(&audit, &store, &state.instance, &host, &image, &policy).await?;

    let launcher = Launcher {
        engine,
        host,
        instance: state.instance.clone(),
        guest: programs.guest,
        default_image,
        directories: directories.clone(),
        roots: Roots::new(config.workspace_roots.clone(), config.harness_on_bind),
        projects: Projects::open(directories.clone()).context("the disk quotas in state_dir")?,
        pool: Pool::new(config.pool.clone()),
        making: Turns::default(),
        starting: ColdStarts::default(),
    };
    let spool = startup::spool(&store, &config).await?;
    let (runs, former) = Runs::open(store.clone(), audit.clone(), launcher, spool.clone(), config.runs)
        .await
        .map_err(broken_store)?;
    let runs = Arc::new(runs);
    let (settings, former_processes) = startup::processes(&store, &config)?;
    // Nobody is let in before this is over: whoever asks for a run finds it as it is.
    let taken = runs.take_over(former, &policy, &open.used, former_processes.names()).await?;
    open.close(&audit, &store, &directories, &taken, &former_approvals.calls()).await?;
    let cursor = Arc::new(RecoveryCursor::new(audit.clone(), store.clone()));
    terminal::remove_leftovers(&config.state_dir.join("sessions"), |run| runs.get(run).is_ok()).await;
    let gateway = Arc::new(Gateway::new(policy, Arc::new(SystemClock)));
    let grants = Grants::open(store.clone(), audit.clone(), gateway.clone()).map_err(broken_store)?;
    let limits = Limits::open(gateway.clone(), audit.clone(), &config.state_dir, config.calls).await?;
    let lives = |run: &str| RunId::parse(run).is_ok_and(|run| runs.living_run(run).is_ok());
    let waiting = former_approvals.restore(&store, &gateway, lives)?;
    let (clock, longest, own) = (Arc::new(SystemClock), config.approval_timeout, config.allow_self_approval);
    let approvals = Approvals::new(gateway.clone(), audit.clone(), store.clone(), clock, longest, own);
    let sources = (audit.clone(), gateway.clone(), runs.clone());
    let (alerts, detection) = anomaly::open(store.clone(), sources, config.open_webhooks()?).await?;
    let executions = execution_log::start(&audit, directories.clone());
    let (tasks, stopping) = (TaskTracker::new(), CancellationToken::new());
    let processes = Processes::new(settings, runs.clone(), audit.clone(), tasks.clone(), stopping.clone());
    let calls = Arc::new(Calls {
        processes,
        escalations: Arc::new(Escalations::new(audit.clone())),
        upstreams: Upstreams::new(audit.clone()),
        audit,
        gateway,
        limits,
        approvals: Arc::new(approvals),
        runs,
        table: CallTable::new(store.clone(), spool.clone()),
        spool,
        quotas: quotas(&config)?,
        store,
        tasks,
        on_stop: config.on_stop,
        stop: stopping,
    });
    calls.processes.reattach(former_processes).await;
    // The runs' lanes work, and no client has come in between: whoever asks for a call that waits finds it.
    calls::resume(&calls, waiting).await;

    let socket =
        Socket::bind(&config.socket, config.socket_mode, config.socket_group, config.max_connections)
            .with_context(|| format!("cannot listen on {}", config.socket.display()))?;
    let certificates = certificates(config.tcp.as_ref())?;
    let tcp = listen_elsewhere(config.tcp.as_ref(), certificates.clone(), &calls).await?;
    let bearers = (tokens(&config, &calls)?, issuers(&config, &calls)?);
    let guard = guard(&config, &calls, bearers.clone());
    mcp::start(&calls, &guard, config.mcp.as_ref()).await?;
    let loader = Arc::new(Loader::new(&calls, config.policy_dir.clone()));
    let services =
        services(&calls, &config, bearers, (Arc::new(index), alerts, grants.clone(), loader.clone()))?;
    let server = tokio::spawn(rpc::serve(services, socket, tcp, guard));
    let watches = watches(&calls, grants, disk, workers);
    calls.runs.keep_pool(calls.gateway.clone(), calls.stop.clone());
    let anomalies = detection.spawn(&calls.stop);
    keep_log(&calls, config.audit.maintenance.clone(), cursor.clone());
    let marking = tokio::spawn(cursor.clone().keep(calls.stop.clone()));
    tracing::info!(socket = %config.socket.display(), instance = state.instance, "ready");

    wait_for_signal(&loader, certificates.as_ref(), &config, &file).await?;
    stop_in_time(&calls, &cursor).await;
    // Streams have ended and calls are answered: what is left are clients that do not hang up.
    let _ = tokio::time::timeout(GOODBYE, server).await;
    // Nothing waits any more, and it must not wait for a disk that fails.
    end(watches.into_iter().chain([marking]), &anomalies).await;
    let patience = if calls.audit.is_available() { GOODBYE } else { LAST_WAIT + GOODBYE };
    drop((calls, loader, cursor));
    // Everything up to the record of the stop is on disk. The writer ends when the last such client has gone.
    let joined = tokio::task::spawn_blocking(move || writer.join());
    let _ = tokio::time::timeout(patience, joined).await;
    let _ = tokio::time::timeout(GOODBYE, async { tokio::join!(executions, hooks) }).await;
    tracing::info!("stopped");
    Ok(())
}

/// The daemon's certificates, which are taken again when their files change.
fn certificates(tcp: Option<&Tcp>) -> anyhow::Result<Option<Arc<Certificates>>> {
    let Some((tcp, files)) = tcp.and_then(|tcp| Some((tcp, tcp.tls.clone()?))) else { return Ok(None) };
    let loaded = Certificates::load(files, tcp.settings.takes_tokens)
        .map_err(|(key, message)| anyhow::anyhow!("listen.tcp.tls.{key}: {message}"))?;
    Ok(Some(Arc::new(loaded)))
}

async fn listen_elsewhere(
    tcp: Option<&Tcp>,
    certificates: Option<Arc<Certificates>>,
    calls: &Calls,
) -> anyhow::Result<Option<rpc::Tcp>> {
    let Some(Tcp { settings, .. }) = tcp else { return Ok(None) };
    if let Some(certificates) = &certificates {
        tokio::spawn(certificates.clone().watch(calls.stop.clone()));
    }
    let bound = rpc::Tcp::bind(settings, certificates, calls.escalations.clone()).await;
    let bound = bound.with_context(|| format!("cannot listen on {}", settings.address))?;
    tracing::info!(address = %bound.address()?, "listens on TCP, too");
    Ok(Some(bound))
}

fn tokens(config: &Config, calls: &Calls) -> anyhow::Result<Arc<Tokens>> {
    let lifetime = config.tcp.as_ref().map_or(DEFAULT_LIFETIME, |tcp| tcp.max_token_lifetime);
    let tokens = Tokens::open_store(calls.store.clone(), calls.audit.clone(), lifetime);
    tokens.map(Arc::new).map_err(broken_store)
}

/// The issuers whose tokens count, with keys that are kept fresh.
fn issuers(config: &Config, calls: &Calls) -> anyhow::Result<Arc<Issuers>> {
    if config.oidc.is_empty() {
        return Ok(Arc::default());
    }
    let issuers = Issuers::open(config.oidc.clone())
        .map_err(|(index, why)| anyhow::anyhow!("oidc[{index}].jwks: {why}"))?;
    let tls = Tls::new().map_err(|why| anyhow::anyhow!("oidc: {why}"))?;
    issuers.keep_fresh(&tls, &calls.stop);
    Ok(Arc::new(issuers))
}

fn guard(config: &Config, calls: &Calls, tokens: (Arc<Tokens>, Arc<Issuers>)) -> GuardLayer {
    let own_uid = rustix::process::geteuid().as_raw();
    let access = Access::new(own_uid, config.access.clone(), config.certified.clone());
    let streams = config.tcp.as_ref().map_or(DEFAULT_STREAMS, |tcp| tcp.streams);
    GuardLayer::new(access, calls.runs.clone(), tokens, calls.escalations.clone(), streams)
}

fn quotas(config: &Config) -> anyhow::Result<Arc<Quotas>> {
    let quotas = Quotas::open(&config.state_dir, config.disk).context("cannot look at state_dir")?;
    Ok(Arc::new(quotas))
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` passes it
fn broken_store(error: StoreError) -> anyhow::Error {
    anyhow::anyhow!("the store: {}", chain(&error))
}

/// The log's word of the start, and of the policy that is in force.
async fn record_start(
    audit: &AuditLog,
    store: &Store,
    instance: &str,
    host: &EngineFacts,
    image: &Result<DefaultImage, String>,
    policy: &Policy,
) -> anyhow::Result<()> {
    policy::keep(store, policy).await;
    let mut details = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "instance": instance,
        "engine": host.engine_version,
        "runc": host.runc_version,
    });
    match image {
        Ok(made) => {
            details["default_image"] = made.image.id().to_string().into();
            details["busybox"] = made.busybox.as_str().into();
        }
        Err(why) => details["no_default_image"] = why.as_str().into(),
    }
    let started = Event::new(Kind::DaemonStarted).details(details);
    for event in [started, policy::loaded_event(policy)] {
        audit.record(event).await.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
    }
    Ok(())
}

/// Starts what watches until the daemon stops: the state disk, the runs' quotas and the spool; the bounds of what is kept of calls;
/// the approvals' clock, and the end of what is remembered for a run; the copies of the rate limits' counters; and what is owed to
/// the store.
fn watches(calls: &Arc<Calls>, grants: Arc<Grants>, disk: StateDisk, workers: usize) -> [JoinHandle<()>; 9] {
    let Calls { audit, limits, approvals, runs, spool, quotas, store, stop, .. } = &**calls;
    let disk_watch = DiskWatch { quotas: quotas.clone(), runs: runs.clone(), audit: audit.clone() };
    let (owed, counters) = (stop.clone(), (limits.clone(), stop.clone()));
    let (clock, ends) = ((approvals.clone(), stop.clone()), (approvals.clone(), runs.clone(), stop.clone()));
    [
        tokio::spawn(disk.watch(stop.clone())),
        tokio::spawn(memory::give_back(runs.clone(), workers, stop.clone())),
        tokio::spawn(watch_spool(spool.clone(), audit.clone(), stop.clone())),
        tokio::spawn(store.clone().keep_bounds(stop.clone())),
        tokio::spawn(disk_watch.run(stop.clone())),
        tokio::spawn(async move { grants.keep_owed(owed).await }),
        tokio::spawn(async move { clock.0.keep_time(clock.1).await }),
        tokio::spawn(async move { ends.0.follow_runs(&ends.1, ends.2).await }),
        tokio::spawn(async move { counters.0.keep(counters.1).await }),
    ]
}

/// The services of the API, each with what it uses.
fn services(
    calls: &Arc<Calls>,
    config: &Config,
    (tokens, issuers): (Arc<Tokens>, Arc<Issuers>),
    (index, alerts, grants, loader): (Arc<Index>, Arc<Alerts>, Arc<Grants>, Arc<Loader>),
) -> anyhow::Result<Services> {
    let Calls { audit, gateway, limits, approvals, runs, quotas, store, tasks, stop, .. } = &**calls;
    let (audit, gateway, runs) = (|| audit.clone(), || gateway.clone(), || runs.clone());
    let (tasks, stop) = (|| tasks.clone(), || stop.clone());
    let bundles = Bundles::open(&config.state_dir, config.spool_min_free, runs(), audit(), store.clone())?;
    let replays = Arc::new(Replays::new(audit(), gateway(), runs()));
    let terminals = Terminals {
        sessions: Sessions::new(config.sessions.clone()),
        gateway: gateway(),
        runs: runs(),
        audit: audit(),
        tasks: tasks(),
        stop: stop(),
    };
    let images = Images::new(runs().launcher.clone(), audit(), gateway(), config.images);
    Ok(Services {
        image: rpc::image::Service { images: Arc::new(images), tasks: tasks(), stop: stop() },
        run: rpc::run::Service {
            runs: runs(),
            calls: calls.clone(),
            audit: audit(),
            gateway: gateway(),
            alerts: alerts.clone(),
            quotas: quotas.clone(),
            tasks: tasks(),
            stop: stop(),
        },
        tool: rpc::tool::Service { calls: calls.clone() },
        process: rpc::process::Service { calls: calls.clone() },
        session: rpc::session::Service { calls: calls.clone() },
        file: rpc::file::Service {
            calls: calls.clone(),
            uploads: Arc::new(Uploads::new(calls.runs.launcher.directories.clone())),
        },
        approval: rpc::approval::Service {
            approvals: approvals.clone(),
            gateway: gateway(),
            runs: runs(),
            audit: audit(),
            stop: stop(),
        },
        audit: rpc::audit::Service {
            audit: audit(),
            index,
            bundles: Arc::new(bundles),
            tasks: tasks(),
            stop: stop(),
        },
        policy: rpc::policy::Service {
            gateway: gateway(),
            runs: runs(),
            approvals: calls.approvals.clone(),
            loader,
            replays,
        },
        alert: rpc::alert::Service { alerts, runs: runs(), audit: audit(), stop: stop() },
        permission: rpc::permission::Service { gateway: gateway(), grants, audit: audit(), tasks: tasks() },
        limit: rpc::limit::Service { limits: limits.clone(), runs: runs() },
        terminal: rpc::terminal::Service(Arc::new(terminals)),
        trash: rpc::trash::Service { runs: runs() },
        token: rpc::token::Service { tokens, gateway: gateway(), tasks: calls.tasks.clone() },
        host: rpc::host::Service {
            runs: runs(),
            gateway: gateway(),
            engine_socket: config.engine.path().to_owned(),
            issuers,
        },
    })
}

/// Has the log signed and tidied. What a start needs is not removed.
fn keep_log(calls: &Calls, maintenance: Maintenance, cursor: Arc<RecoveryCursor>) {
    let released = move || cursor.clone().look_released();
    tokio::spawn(maintenance.run(calls.audit.clone(), released, calls.stop.clone()));
}

/// The log has it when nothing can be kept of what commands write, and when it can again.
async fn watch_spool(spool: Arc<Spool>, audit: Arc<AuditLog>, stop: CancellationToken) {
    let record = |event| {
        let audit = audit.clone();
        async move {
            let _ = audit.enqueue(event).await;
        }
    };
    spool.watch(record, stop).await;
}

/// Ends what only watches.
async fn end(watches: impl IntoIterator<Item = JoinHandle<()>>, anomalies: &TaskTracker) {
    for watch in watches {
        watch.abort();
        let _ = watch.await;
    }
    let _ = tokio::time::timeout(GOODBYE, anomalies.wait()).await;
}

/// Stops within [`STOP`]; the next start cleans up what is left.
async fn stop_in_time(calls: &Calls, cursor: &RecoveryCursor) {
    tracing::info!(runs = calls.on_stop.name(), "stopping: no new calls");
    let stopped = tokio::time::timeout(STOP, stop(calls, cursor)).await;
    if stopped.is_err() {
        tracing::error!("not everything ended within {STOP:?}; the next start cleans up");
    }
}

/// Refuse, end, flush.
async fn stop(calls: &Calls, cursor: &RecoveryCursor) {
    calls.stop.cancel();
    calls.runs.shutdown(calls.on_stop).await;
    calls.tasks.close();
    calls.tasks.wait().await;
    if calls.audit.record(Event::new(Kind::DaemonStopped)).await.is_err() {
        tracing::error!(
            "the audit log cannot be written: the stop is not in it unless the disk recovers now"
        );
        return;
    }
    calls.limits.copy().await;
    cursor.finish().await;
    // Signed, so that nothing can be cut off while no daemon looks. What goes wrong is said by the thread.
    let _ = calls.audit.checkpoint().await;
}

/// Waits for SIGTERM or SIGINT. SIGHUP loads the policy and the TLS certificates again.
async fn wait_for_signal(
    loader: &Arc<Loader>,
    certificates: Option<&Arc<Certificates>>,
    config: &Config,
    file: &Path,
) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => {
                if let Some(Err((key, message))) = certificates.map(|certificates| certificates.reload()) {
                    tracing::warn!("listen.tcp.tls.{key}: {message}; the former TLS certificates stay in force");
                }
                config::tell_what_waits(config, file);
                let loader = loader.clone();
                // By itself: it waits for the audit log, and a stop must not.
                tokio::spawn(async move {
                    // What is wrong with it is in the log already.
                    let _ = loader.reload("signal:SIGHUP").await;
                });
            }
        }
    }
}
