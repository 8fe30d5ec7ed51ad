//! The third phase: clients can connect, until a signal stops the daemon.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ::metrics::TokenInForce;
use ::notices::Push;
use ::policy::Policy;
use ::traces::Exporter;
use anomaly::Deliveries;
use anyhow::Context as _;
use audit::{Event, Kind};
use audit_service::{AuditLog, LAST_WAIT, Maintenance};
use calls::Control;
use calls::grants::Grants;
use daemon_log::Log;
use disk_watch::DiskWatch;
use listener::{Certificates, GuardLayer, Socket, Tokens};
use oidc::Issuers;
use refusal::chain;
use serde_json::json;
use service_manager::ServiceManager;
use store::StateDisk;
use store::spool::Spool;
use take_over::{Listeners, StopSignals};
use tokio::signal::unix::Signal;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use webhook::Tls;

use super::Ended;
use super::broken_store;
use super::hand_over::{self, Heirs};
use super::parts::Parts;
use super::recovered::Recovered;
use super::services::{services, tools};
use crate::config::{Config, DEFAULT_LIFETIME, DEFAULT_STREAMS, Tcp, Text};
use crate::policy::{Loader, Sources};
use crate::recovery::RecoveryCursor;
use crate::reload::{IssuerTasks, Reloader, Targets};
use crate::rpc;
use crate::startup::StateDirectory;
use crate::{agent_check, console, mcp, memory, metrics, notices, traces};
use readiness::Readiness;

/// Longest time that an orderly stop may take.
const STOP: Duration = Duration::from_secs(60);

/// Time that clients and background tasks have to finish at the end of a stop.
const GOODBYE: Duration = Duration::from_secs(2);

/// A daemon that serves.
pub(super) struct Serving {
    state_dir: PathBuf,
    state: StateDirectory,
    parts: Parts,
    reloader: Arc<Reloader>,
    manager: Arc<ServiceManager>,
    readiness: Arc<Readiness>,
    cursor: Arc<RecoveryCursor>,
    stops: StopSignals,
    /// Cancelled when no further connection is accepted.
    closing: CancellationToken,
    server: JoinHandle<()>,
    /// Tasks that only watch, and are aborted at the end.
    watches: Vec<JoinHandle<()>>,
    deliveries: Arc<Deliveries>,
    executions: JoinHandle<()>,
    exporter: Option<Exporter>,
    hooks: JoinHandle<()>,
    writer: thread::JoinHandle<()>,
}

impl Recovered {
    /// Listens, and starts the tasks of a daemon that serves. `file` is its configuration.
    pub(super) async fn serve(
        self,
        workers: usize,
        file: &Path,
        (own_log, manager, stops): (&Arc<Log>, &Arc<ServiceManager>, Option<StopSignals>),
        listeners: &Listeners,
    ) -> anyhow::Result<Serving> {
        // Clients can connect before the start is over, and may stop the daemon at once.
        let stops = stops.map_or_else(StopSignals::new, Ok)?;
        let Self { config, state, parts, calls, grants, alerts, detection, cursor, .. } = self;
        let (executions, exporter, log, disk) = (self.executions, self.exporter, self.log, self.disk);
        let socket = Socket::bind(
            &config.socket,
            config.socket_mode,
            config.socket_group,
            config.max_connections,
            listeners,
        )
        .with_context(|| format!("cannot listen on {}", config.socket.display()))?;
        let certificates = certificates(config.tcp.as_ref())?;
        let tcp = listen_elsewhere(config.tcp.as_ref(), certificates.clone(), &parts, listeners).await?;
        let issuers_stop = parts.life.stop.child_token();
        let (tokens, issuers) = (tokens(&config, &parts)?, issuers(&config, &issuers_stop)?);
        let guard = guard(&config, &parts, (tokens.clone(), issuers));
        // Before the first call: a successor that cannot serve all of this gives up.
        let bound = console::bind(config.console.as_ref(), &config.state_dir, listeners).await?;
        let push = config.notices.push.clone().map(|push| Push::open(parts.store.clone(), push)).transpose();
        let push = push.map_err(|error| anyhow::anyhow!("push: {}", chain(&error)))?;
        let access = mcp::access(
            parts.workers.runs.clone(),
            parts.records.escalations.clone(),
            tools(&calls, &parts),
            &guard,
        );
        mcp::start(access, config.mcp.as_ref(), listeners, (&parts.life.tasks, parts.life.stop.clone()))
            .await?;
        let audit = parts.records.audit.clone();
        let readiness = Readiness::new(audit.clone(), parts.store.clone(), parts.workers.runs.clone());
        let seen = (Arc::new(log.index), alerts, readiness.clone());
        let made = (&parts.control, &parts.workers, &parts.records, &parts.node);
        let life = (&parts.life.tasks, &parts.life.stop);
        let metrics_token = metrics::start(
            config.metrics.as_ref(),
            certificates.clone(),
            made,
            seen.clone(),
            life,
            listeners,
        )
        .await?;
        let node = (parts.node.clone(), readiness.seen());
        agent_check::start(config.agent_check.as_ref(), node, life, listeners).await?;
        traces::follow(&parts.records.traces, parts.records.audit.clone(), life);
        let (index, alerts, _) = seen;
        let judges = (parts.control.gateway.clone(), parts.control.approvals.clone());
        let loader = Loader::new(Sources::of(&config), judges, audit.clone(), parts.store.clone());
        let loader = Arc::new(loader);
        let closing = parts.life.closing.clone();
        let deliveries = Arc::new(detection.spawn(&parts.life.stop));
        let issuer_tasks = IssuerTasks::new(parts.life.stop.clone(), issuers_stop);
        let opened = (guard.clone(), certificates.clone(), metrics_token);
        let targets = targets(opened, &parts, deliveries.clone(), issuer_tasks);
        let (sources, own) = ((loader.clone(), audit), (own_log.clone(), manager.clone()));
        let reloader = Reloader::new((file.to_owned(), config.clone()), sources, own, targets);
        let reloader = Arc::new(reloader);
        let doors = bound.as_ref().map(|bound| bound.doors.clone());
        let asked = (parts.control.gateway.clone(), parts.control.approvals.clone());
        let told = (tokens.clone(), guard.clone());
        notices::start(&config.notices, asked, told, (push.clone(), doors.clone()), life)?;
        let (linked, serving_certificates) = (tokens.clone(), certificates.clone());
        let services = services(
            (&calls, &parts),
            &config,
            (tokens, guard.clone(), certificates),
            (index, alerts, grants.clone(), loader),
            (reloader.clone(), readiness.clone()),
            (push, doors),
        )?;
        let api = rpc::served(services)?;
        let audit = parts.records.audit.clone();
        console::start(bound, (&api.routes, &guard), (serving_certificates, audit, linked), life);
        let server = tokio::spawn(rpc::serve(api, socket, tcp, guard, closing.clone()));
        let mut watches = Vec::from(watches(&parts, grants, disk, workers));
        parts.workers.runs.keep_pool(parts.control.gateway.in_force().clone(), parts.life.stop.clone());
        keep_log(&parts, config.audit.maintenance.clone(), cursor.clone());
        watches.push(tokio::spawn(cursor.clone().keep(parts.life.stop.clone())));
        tracing::info!(socket = %config.socket.display(), instance = state.instance, "ready");
        let (hooks, writer) = (log.hooks, log.writer);
        Ok(Serving {
            state_dir: config.state_dir,
            state,
            parts,
            reloader,
            manager: manager.clone(),
            readiness,
            cursor,
            stops,
            closing,
            server,
            watches,
            deliveries,
            executions,
            exporter,
            hooks,
            writer,
        })
    }
}

impl Serving {
    /// Lets other processes ask to take over. `file` is the configuration.
    pub(super) fn open_to_heirs(&self, file: &Path, listeners: &Listeners) -> Heirs {
        hand_over::open(&self.state_dir, file, listeners, &self.parts)
    }

    /// Tells the service manager that clients can connect.
    pub(super) fn is_ready(&mut self) {
        self.manager.ready(&self.readiness.status());
        let watch = self.readiness.clone().watch(self.manager.clone(), self.parts.life.stop.clone());
        self.watches.push(tokio::spawn(watch));
    }

    /// Takes the configuration and the policy of now, if the predecessor took reloads after this daemon had read its files.
    pub(super) fn catch_up(&self) {
        let reloader = self.reloader.clone();
        tokio::spawn(async move { reloader.catch_up().await });
    }

    /// Serves until a signal or a successor, and then stops the parts in order.
    ///
    /// `hangups` has the requests to reload since the start.
    pub(super) async fn until_stopped(
        self,
        hangups: Signal,
        listeners: &Listeners,
        heirs: Heirs,
    ) -> anyhow::Result<Ended> {
        let Self { parts, reloader, manager, readiness, cursor, closing, server, mut stops, .. } = self;
        let heir = tokio::select! {
            () = wait_for_stop(&reloader, hangups, &mut stops) => None,
            heir = heirs.next() => Some(heir),
        };
        let heir = match heir {
            None => {
                listeners.close();
                None
            }
            Some(heir) => hand_over::drain(heir, &closing, listeners, &parts, &mut stops).await,
        };
        // For the service manager a hand-over is no stop of the service.
        if heir.is_none() {
            manager.stopping("stopping: no new calls");
        }
        stop_in_time(&parts, &cursor).await;
        if let Some(exporter) = self.exporter {
            exporter.finish(GOODBYE).await;
        }
        // Streams have ended and calls are answered. Only clients that do not hang up are left.
        let _ = tokio::time::timeout(GOODBYE, server).await;
        // No call depends on these tasks any longer. They are aborted, because a stop must not wait for a disk that fails.
        end(self.watches, self.deliveries.tasks()).await;
        let in_force = (reloader.in_force().text(), parts.control.gateway.policy());
        let patience = if parts.records.audit.is_available() { GOODBYE } else { LAST_WAIT + GOODBYE };
        drop((parts, reloader, readiness, cursor, self.deliveries));
        // Everything up to the record of the stop is on disk. The writer ends when the last of those clients has gone.
        let joined = tokio::task::spawn_blocking(move || self.writer.join());
        let _ = tokio::time::timeout(patience, joined).await;
        let _ = tokio::time::timeout(GOODBYE, async { tokio::join!(self.executions, self.hooks) }).await;
        tracing::info!("stopped");
        if heir.is_some() {
            keep(self.state_dir, in_force).await;
        }
        drop(self.state);
        Ok(heir.map_or(Ended::Stopped, |heir| Ended::HandsOver(heir, stops)))
    }
}

/// Loads the daemon's TLS certificates, if the configuration names any.
///
/// [`listen_elsewhere`] starts the task that reloads them when their files change.
fn certificates(tcp: Option<&Tcp>) -> anyhow::Result<Option<Arc<Certificates>>> {
    let Some((tcp, files)) = tcp.and_then(|tcp| Some((tcp, tcp.tls.clone()?))) else { return Ok(None) };
    let loaded = Certificates::load(files, tcp.settings.takes_tokens)
        .map_err(|(key, message)| anyhow::anyhow!("listen.tcp.tls.{key}: {message}"))?;
    Ok(Some(Arc::new(loaded)))
}

async fn listen_elsewhere(
    tcp: Option<&Tcp>,
    certificates: Option<Arc<Certificates>>,
    parts: &Parts,
    listeners: &Listeners,
) -> anyhow::Result<Option<listener::Tcp>> {
    let Some(Tcp { settings, .. }) = tcp else { return Ok(None) };
    if let Some(certificates) = &certificates {
        tokio::spawn(certificates.clone().watch(parts.life.stop.clone()));
    }
    let bound =
        listener::Tcp::bind(settings, certificates, parts.records.escalations.clone(), listeners).await;
    let bound = bound.with_context(|| format!("cannot listen on {}", settings.address))?;
    tracing::info!(address = %bound.address()?, "listens on TCP, too");
    Ok(Some(bound))
}

/// Returns the parts that a reload changes.
fn targets(
    (guard, certificates, metrics_token): (GuardLayer, Option<Arc<Certificates>>, Option<TokenInForce>),
    parts: &Parts,
    deliveries: Arc<Deliveries>,
    issuers: IssuerTasks,
) -> Targets {
    Targets {
        guard,
        certificates,
        metrics_token,
        secrets: parts.workers.runs.launcher.way_out.outside.shared().secrets.clone(),
        approvals: parts.control.approvals.clone(),
        limits: parts.control.limits.clone(),
        deliveries,
        issuers,
    }
}

fn tokens(config: &Config, parts: &Parts) -> anyhow::Result<Arc<Tokens>> {
    let lifetime = config.tcp.as_ref().map_or(DEFAULT_LIFETIME, |tcp| tcp.max_token_lifetime);
    let tokens = Tokens::open_store(parts.store.clone(), parts.records.audit.clone(), lifetime);
    tokens.map(Arc::new).map_err(broken_store)
}

/// Opens the issuers whose tokens the daemon accepts, and keeps their keys fresh.
fn issuers(config: &Config, stop: &CancellationToken) -> anyhow::Result<Arc<Issuers>> {
    if config.oidc.is_empty() {
        return Ok(Arc::default());
    }
    let issuers = Issuers::open(config.oidc.clone())
        .map_err(|(index, why)| anyhow::anyhow!("oidc[{index}].jwks: {why}"))?;
    let tls = Tls::new().map_err(|why| anyhow::anyhow!("oidc: {why}"))?;
    issuers.keep_fresh(&tls, stop);
    Ok(Arc::new(issuers))
}

fn guard(config: &Config, parts: &Parts, tokens: (Arc<Tokens>, Arc<Issuers>)) -> GuardLayer {
    let access = Targets::access(config);
    let streams = config.tcp.as_ref().map_or(DEFAULT_STREAMS, |tcp| tcp.streams);
    GuardLayer::new(access, parts.workers.runs.clone(), tokens, parts.records.escalations.clone(), streams)
}

/// Starts the tasks that watch and tidy until the daemon stops.
///
/// In the order of the array, they watch the free space of the state disk, return freed memory to the kernel, watch the
/// spool, bound the stored calls, watch the runs' disk quotas, delete old bases, checkpoints and mirrors, store grants that
/// could not be stored before, let approvals expire, end the consents of runs that end, and copy the counters of the rate
/// limits and the traffic of tenants to disk, and stop runs at the deadline of a drain.
fn watches(parts: &Parts, grants: Arc<Grants>, disk: StateDisk, workers: usize) -> [JoinHandle<()>; 14] {
    let Parts { control, records, bases, checkpoints, life, store, .. } = parts;
    let Control { limits, approvals, quotas, .. } = control;
    let (runs, audit, spool, stop) = (&parts.workers.runs, &records.audit, &records.spool, &life.stop);
    let space = DiskWatch { quotas: quotas.clone(), runs: runs.clone(), audit: audit.clone() };
    let swept = (bases.clone(), stop.clone());
    let kept = (checkpoints.clone(), stop.clone());
    let mirrored = (runs.launcher.remote_clones.mirrors.clone(), stop.clone());
    let (owed, counters) = (stop.clone(), (limits.clone(), stop.clone()));
    let (clock, ends) = ((approvals.clone(), stop.clone()), (approvals.clone(), runs.clone(), stop.clone()));
    [
        tokio::spawn(disk.watch(stop.clone())),
        tokio::spawn(memory::give_back(runs.clone(), workers, stop.clone())),
        tokio::spawn(watch_spool(spool.clone(), audit.clone(), stop.clone())),
        tokio::spawn(store.clone().keep_bounds(stop.clone())),
        tokio::spawn(space.run(stop.clone())),
        tokio::spawn(async move { swept.0.keep(swept.1).await }),
        tokio::spawn(async move { kept.0.keep(kept.1).await }),
        tokio::spawn(async move { mirrored.0.keep(mirrored.1).await }),
        tokio::spawn(async move { grants.keep_owed(owed).await }),
        tokio::spawn(async move { clock.0.keep_time(clock.1).await }),
        tokio::spawn(async move { ends.0.follow_runs(&ends.1, ends.2).await }),
        tokio::spawn(async move { counters.0.keep(counters.1).await }),
        tokio::spawn(runs.launcher.tenancy().clone().keep(stop.clone())),
        tokio::spawn(parts.node.clone().keep()),
    ]
}

/// Starts the task that signs, compresses and removes segments of the audit log.
///
/// Segments that the next start has to read are not removed.
fn keep_log(parts: &Parts, maintenance: Maintenance, cursor: Arc<RecoveryCursor>) {
    let released = move || cursor.clone().look_released();
    tokio::spawn(maintenance.run(parts.records.audit.clone(), released, parts.life.stop.clone()));
}

/// Watches the spool, and records when command output can no longer be stored and when it can again.
async fn watch_spool(spool: Arc<Spool>, audit: Arc<AuditLog>, stop: CancellationToken) {
    let record = |why: Option<String>| {
        let audit = audit.clone();
        let details = match why {
            Some(why) => json!({ "state": "spool_off", "why": why }),
            None => json!({ "state": "spool_on" }),
        };
        async move {
            let _ = audit.enqueue(Event::new(Kind::DiskSpace).details(details)).await;
        }
    };
    spool.watch(record, stop).await;
}

/// Ends the tasks that only watch.
async fn end(watches: impl IntoIterator<Item = JoinHandle<()>>, anomalies: &TaskTracker) {
    for watch in watches {
        watch.abort();
        let _ = watch.await;
    }
    let _ = tokio::time::timeout(GOODBYE, anomalies.wait()).await;
}

/// Keeps configuration and policy in force for the case that the successor fails. Gives up after [`GOODBYE`].
async fn keep(state_dir: PathBuf, (config, policy): (Text, Arc<Policy>)) {
    let kept = tokio::task::spawn_blocking(move || crate::hand_over::keep(&state_dir, &config, &policy));
    let why = match tokio::time::timeout(GOODBYE, kept).await {
        Ok(Ok(Ok(()))) => return,
        Ok(Ok(Err(error))) => format!("{error:#}"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the disk does not answer".to_owned(),
    };
    tracing::error!(
        why,
        "configuration and policy in force are not kept: if the successor fails, the files of that moment count"
    );
}

/// Stops the daemon within [`STOP`]. The next start cleans up anything that is left.
async fn stop_in_time(parts: &Parts, cursor: &RecoveryCursor) {
    tracing::info!(runs = parts.life.on_stop.now().name(), "stopping: no new calls");
    let stopped = tokio::time::timeout(STOP, stop(parts, cursor)).await;
    if stopped.is_err() {
        tracing::error!("not everything ended within {STOP:?}; the next start cleans up");
    }
}

/// Refuses new calls, shuts the runs down, waits for the tasks, and flushes the audit log.
async fn stop(parts: &Parts, cursor: &RecoveryCursor) {
    parts.life.stop.cancel();
    parts.workers.runs.shutdown(parts.life.on_stop.now()).await;
    parts.life.tasks.close();
    parts.life.tasks.wait().await;
    let shared = parts.workers.runs.launcher.way_out.outside.shared().clone();
    // Without these writes, the use of the last second would be lost.
    let written = tokio::task::spawn_blocking(move || {
        // The ledger logs its errors.
        shared.ledger.write();
        shared.tenancy.write()
    });
    if !matches!(written.await, Ok(true)) {
        tracing::error!(
            "the traffic of tenants was not stored: the next daemon lacks that of the last second"
        );
    }
    if parts.records.audit.record(Event::new(Kind::DaemonStopped)).await.is_err() {
        tracing::error!(
            "the audit log cannot be written: the stop is not in it unless the disk recovers now"
        );
        return;
    }
    parts.control.limits.copy().await;
    cursor.finish().await;
    // Signs the log, so that no record can be cut off unnoticed while no daemon runs. The signing thread logs its
    // errors.
    let _ = parts.records.audit.checkpoint().await;
}

/// Waits for SIGTERM or SIGINT. On SIGHUP, also on one since the start, reloads configuration and policy.
async fn wait_for_stop(reloader: &Arc<Reloader>, mut hangups: Signal, stops: &mut StopSignals) {
    loop {
        tokio::select! {
            () = stops.next() => return,
            _ = hangups.recv() => {
                let reloader = reloader.clone();
                // In a separate task: a reload waits for the audit log, and a stop must not wait for a reload.
                tokio::spawn(async move {
                    // The reloader logs the problems itself.
                    let _ = reloader.reload("signal:SIGHUP").await;
                });
            }
        }
    }
}
