//! The first phase: everything that the start needs is open, and nothing of an earlier daemon has changed yet.

use disk_quotas::Projects;
use std::sync::{Arc, OnceLock};
use std::thread;

use ::egress::{Outside, Program, Shared};
use ::policy::{InForce, Policy};
use admission::FairTurns;
use anyhow::Context as _;
use audit::{Event, Kind};
use audit_service::{AuditLog, Index};
use containers::DefaultImage;
use mirrors::Mirrors;
use model_usage::{Ledger, Prices};
use refusal::chain;
use runs::{ColdStarts, Directories, Launcher, Pool, RemoteClones, Roots, WayOut};
use secrets::Secrets;
use store::{StateDisk, Store};
use tenants::Tenancy;
use tokio::task::JoinHandle;

use super::broken_store;
use crate::config::Config;
use crate::startup::{Prepared, StateDirectory};
use crate::{policy, startup};

/// The open log, store and engine of a daemon.
pub(super) struct Opened {
    pub(super) config: Config,
    /// Keeps other daemons from this state directory until the end.
    pub(super) state: StateDirectory,
    pub(super) policy: InForce,
    pub(super) directories: Directories,
    pub(super) launcher: Launcher,
    /// The default image, or the reason that there is none, for the record of the start.
    default_image: Result<DefaultImage, String>,
    pub(super) store: Store,
    pub(super) log: Log,
    pub(super) disk: StateDisk,
}

/// The audit log and the tasks that work for it.
pub(super) struct Log {
    pub(super) audit: Arc<AuditLog>,
    pub(super) index: Index,
    pub(super) writer: thread::JoinHandle<()>,
    pub(super) hooks: JoinHandle<()>,
}

impl Opened {
    /// Checks the kernel and the engine, reads the policy, and opens the audit log and the store.
    ///
    /// `kept` is a policy in place of that in the files.
    pub(super) async fn open(
        config: Config,
        prepared: Prepared,
        kept: Option<Policy>,
    ) -> anyhow::Result<Self> {
        let Prepared { state, disk, programs } = prepared;
        startup::kernel(&config, programs.host_worker).await?;
        let policy = match kept {
            Some(policy) => policy,
            None => startup::policy(&config)?,
        };
        let policy = InForce::new(policy);
        let (engine, host) = startup::engine(&config).await?;
        let directories = Directories { state: config.state_dir.clone() };
        let (offered, default_image) = startup::default_image(&engine, &config).await;

        let (log, _, writer) = AuditLog::open(&config.state_dir.join("audit"), config.audit_settings())
            .map_err(|error| anyhow::anyhow!("the audit log: {}", chain(&error)))?;
        let audit = Arc::new(log.on(disk.follow()));
        let index = audit.index().context("cannot start the audit log's index")?;
        let hooks = tokio::spawn(config.audit.hooks.open()?.run(audit.checkpoints()));
        let store = Store::open(&config.state_dir.join("store.db"), config.outcomes).map_err(broken_store)?;
        let mirrors =
            Mirrors::open(directories.state.join("mirrors"), config.mirrors, config.disk.warn_free).await;
        let mirrors = mirrors.context("the mirrors of repositories in state_dir")?;
        let launcher = Launcher {
            engine,
            host,
            instance: state.instance.clone(),
            guest: programs.guest,
            default_image: offered,
            directories: directories.clone(),
            roots: Roots::new(config.workspace_roots.clone(), config.harness_on_bind),
            projects: Projects::open(&directories.state, directories.counted())
                .context("the disk quotas in state_dir")?,
            pool: Pool::new(config.pool.clone()),
            making: FairTurns::default(),
            starting: ColdStarts::default(),
            way_out: WayOut {
                program: Arc::new(Program::new(programs.egress)),
                block: config.egress.block,
                outside: Arc::new(outside(&config, &policy)?),
                policy: policy.clone(),
                reviewers: OnceLock::new(),
            },
            remote_clones: RemoteClones { mirrors: Arc::new(mirrors), audit: audit.clone() },
        };
        Ok(Self {
            config,
            state,
            policy,
            directories,
            launcher,
            default_image,
            store,
            log: Log { audit, index, writer, hooks },
            disk,
        })
    }

    /// Stores the policy, and records the start of the daemon and the policy in force.
    pub(super) async fn record_start(&self) -> anyhow::Result<()> {
        let policy = self.policy.policy();
        policy::keep(&self.store, &policy).await;
        let engine = &self.launcher.host;
        let mut details = serde_json::json!({
            "version": env!("CARGO_PKG_VERSION"),
            "instance": self.state.instance,
            "engine": engine.engine_version,
            "configuration": self.config.digest,
            "runc": engine.runc_version,
        });
        match &self.default_image {
            Ok(made) => {
                details["default_image"] = made.image.id().to_string().into();
                details["busybox"] = made.busybox.as_str().into();
            }
            Err(why) => details["no_default_image"] = why.as_str().into(),
        }
        let started = Event::new(Kind::DaemonStarted).details(details);
        for event in [started, policy::loaded_event(&policy)] {
            let recorded = self.log.audit.record(event).await;
            recorded.map_err(|_| anyhow::anyhow!("the audit log cannot be written"))?;
        }
        Ok(())
    }
}

/// Opens the parts of the host that the connections of all runs share, and reports the secrets that have no value.
fn outside(config: &Config, policy: &InForce) -> anyhow::Result<Outside> {
    let secrets = Arc::new(Secrets::new(config.secrets.clone()));
    tokio::spawn(startup::report_secrets(Arc::clone(&secrets)));
    let directory = config.state_dir.join("usage");
    let ledger = Ledger::open(&directory, Prices::new(config.model_prices.clone()))
        .context("the record of the use of models in state_dir cannot be opened")?;
    let policy = policy.clone();
    let tenancy = Tenancy::open(&config.state_dir, move || policy.policy().tenants().clone());
    let shared = Shared {
        secrets,
        roots: Arc::new(config.egress.roots()?),
        ledger: Arc::new(ledger),
        tenancy: Arc::new(tenancy),
        bytes: Arc::default(),
    };
    Ok(Outside::new(config.egress.hosts.clone(), config.egress.proxy()?, shared))
}
