//! The second phase: the runs and calls of an earlier daemon are taken over, and no client can connect yet.

use disk_quotas::Quotas;
use std::sync::Arc;

use ::metrics::StageTimes;
use ::traces::Exporter;
use anomaly::{Alerts, Detection};
use anyhow::Context as _;
use audit_service::Escalations;
use bases::Bases;
use calls::grants::Grants;
use calls::limits::Limits;
use calls::{Approvals, CallTable, Calls, Control, Life, Records, Upstreams, WaitingApprovals, Workers};
use checkpoints::Checkpoints;
use gateway::Gateway;
use identity::RunId;
use node::{Gate, Node};
use processes::{Processes, StopRule};
use runs::Runs;
use store::StateDisk;
use timestamp::SystemClock;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::agent_checkpoints::OfAgents;
use super::broken_store;
use super::opened::{Log, Opened};
use super::parts::Parts;
use crate::config::Config;
use crate::recovery::{self, RecoveryCursor};
use crate::reload::Targets;
use crate::startup;
use crate::startup::StateDirectory;
use crate::traces;

/// The parts of a daemon that can make calls.
pub(super) struct Recovered {
    pub(super) config: Config,
    pub(super) state: StateDirectory,
    pub(super) parts: Parts,
    pub(super) calls: Arc<Calls>,
    pub(super) grants: Arc<Grants>,
    pub(super) alerts: Arc<Alerts>,
    pub(super) detection: Detection,
    pub(super) cursor: Arc<RecoveryCursor>,
    pub(super) executions: JoinHandle<()>,
    /// The export of traces, if there is one.
    pub(super) exporter: Option<Exporter>,
    pub(super) log: Log,
    pub(super) disk: StateDisk,
}

impl Opened {
    /// Takes over the runs, approvals, processes and calls that an earlier daemon left.
    ///
    /// If `may_lose_runs` returns false, a run that could not be reattached is an error.
    pub(super) async fn recover(self, may_lose_runs: impl Fn() -> bool) -> anyhow::Result<Recovered> {
        let audit = self.log.audit.clone();
        backup_service::continue_from_backup(&self.config.state_dir, &self.store, &audit).await?;
        let living = runs::stored::living(&self.store).map_err(broken_store)?;
        let open = recovery::look(&audit, &self.store, &living).await?;
        let mut waiting_approvals = WaitingApprovals::read(&self.store, &audit).await?;
        self.record_start().await?;

        let Self { config, state, policy, directories, launcher, store, log, disk, .. } = self;
        let spool = startup::spool(&store, &config).await?;
        let gate = Arc::new(Gate::open(&config.state_dir, config.node.clone(), config.runs.living)?);
        let admission = (config.runs, gate.clone() as Arc<dyn runs::Gate>);
        let opened = Runs::open(store.clone(), audit.clone(), launcher, spool.clone(), admission).await;
        let (runs, earlier) = opened.map_err(broken_store)?;
        let runs = Arc::new(runs);
        let on_stop = StopRule::new(config.on_stop);
        let (settings, leftover_processes) = startup::processes(&store, &config, on_stop.clone())?;
        // No client can connect before this is done, so a client that asks for a run finds its current state.
        let (in_force, names) = (policy.policy(), leftover_processes.names());
        let taken = runs.take_over(earlier, &in_force, &open.used, names, may_lose_runs);
        let taken = taken.await?;
        open.close(&audit, &store, &directories, &taken, &waiting_approvals.calls()).await?;
        waiting_approvals.close_connections(&audit).await?;
        let cursor = Arc::new(RecoveryCursor::new(audit.clone(), store.clone()));
        terminals::remove_leftovers(&config.state_dir.join("sessions"), |run| runs.get(run).is_ok()).await;
        let ledger = &runs.launcher.way_out.outside.shared().ledger;
        ledger.retain(|run| RunId::parse(run).is_ok_and(|run| runs.get(run).is_ok()));
        let gateway = Arc::new(Gateway::new(policy, Arc::new(SystemClock)));
        let grants = Grants::open(store.clone(), audit.clone(), gateway.clone()).map_err(broken_store)?;
        let parts = (gateway.clone(), audit.clone(), runs.launcher.tenancy().clone());
        let limits = Limits::open(parts, &config.state_dir, config.calls).await?;
        let lives = |run: &str| RunId::parse(run).is_ok_and(|run| runs.living_run(run).is_ok());
        let waiting = waiting_approvals.restore(&store, &gateway, lives)?;
        let (clock, rules) = (Arc::new(SystemClock), Targets::approval_settings(&config));
        let approvals = Approvals::new(gateway.clone(), audit.clone(), store.clone(), clock, rules);
        let approvals = Arc::new(approvals);
        runs.ask_about_connections(approvals.clone());
        let sources = (audit.clone(), gateway.clone(), runs.clone());
        let (alerts, detection) = anomaly::open(store.clone(), sources, config.open_webhooks()?).await?;
        let executions = execution_log::start(&audit, directories);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let quotas = Quotas::open(&config.state_dir, config.disk).context("cannot look at state_dir")?;
        let quotas = Arc::new(quotas);
        let sources = (runs.clone(), audit.clone(), store.clone());
        let bases = Bases::open(sources, (quotas.clone(), config.disk.warn_free), config.bases);
        let bases = Arc::new(bases.map_err(broken_store)?);
        let processes = Processes::new(settings, runs.clone(), audit.clone(), tasks.clone(), stop.clone());
        let (sources, space) =
            ((runs.clone(), audit.clone(), store.clone()), (quotas.clone(), config.disk.warn_free));
        let checkpoints = Checkpoints::open(sources, processes.clone(), space, config.checkpoints);
        let checkpoints = Arc::new(checkpoints.map_err(broken_store)?);
        let sources = (runs.clone(), bases.clone(), audit.clone());
        let (in_force, life) = (gateway.in_force().clone(), (tasks.clone(), stop.clone()));
        let node = Node::new(env!("CARGO_PKG_VERSION"), gate, sources, in_force, life);
        let (traces, exporter) = traces::start(config.traces.as_ref())?;
        let parts = Parts {
            control: Control { gateway, limits, approvals, quotas },
            workers: Workers {
                checkpoints: Arc::new(OfAgents { checkpoints: checkpoints.clone() }),
                runs,
                processes,
                upstreams: Arc::new(Upstreams::new(audit.clone())),
            },
            records: Records {
                escalations: Arc::new(Escalations::new(audit.clone())),
                audit,
                table: Arc::new(CallTable::new(store.clone(), spool.clone())),
                spool,
                stages: StageTimes::default(),
                traces,
            },
            bases,
            checkpoints,
            node,
            life: Life { tasks, closing: stop.child_token(), entering: TaskTracker::new(), stop, on_stop },
            store,
        };
        let calls = Arc::new(parts.calls());
        parts.workers.processes.reattach(leftover_processes).await;
        parts.checkpoints.resume_restores().await;
        // The lanes of the runs work by now. A client that asks for a waiting call finds it.
        calls::resume(&calls, waiting).await;
        Ok(Recovered {
            config,
            state,
            parts,
            calls,
            grants,
            alerts,
            detection,
            cursor,
            executions,
            exporter,
            log,
            disk,
        })
    }
}
