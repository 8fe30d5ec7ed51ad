//! The egress of a run and of its companions. The run's begins and ends with it; that of a companion begins before its program.

use std::future::ready;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use audit::Event;
use audit_service::AuditLog;
use companions::Companion;
use containers::{chromium_policy, java_store};
use egress::{Answer, Control, Egress, PushQuestion, Question, Setup, Trust};
use egress_rules::{HostName, Narrowed};
use executor::{Lanes, PushPreview};
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use identity::RunId;
use model_usage::Who;
use operations::Reason;
use parking_lot::Mutex;
use policy::Policy;
use refusal::{Refusal, chain};
use tokio_util::sync::CancellationToken;

use crate::launch::Launcher;
use crate::placeholders::{self, Placeholder};
use crate::registry::Runs;
use crate::run::Run;
use crate::shared::Shared;
use crate::way_in::network_of;
use crate::way_out::{Asked, Streams, rules_beside, rules_of};

/// Digits of an id of SHA-1.
const SHA1: usize = 40;

/// The daemon, for the connections of one run, or for those of one of its companions.
struct Office {
    audit: Arc<AuditLog>,
    launcher: Arc<Launcher>,
    run: Arc<Run>,
    side: Side,
    rules: Mutex<Option<Followed>>,
}

/// The programs whose connections these are.
enum Side {
    Run(Arc<Lanes>),
    Companion(Arc<Companion>),
}

impl Side {
    fn companion(&self) -> Option<&Arc<Companion>> {
        match self {
            Self::Run(_) => None,
            Self::Companion(companion) => Some(companion),
        }
    }

    /// Returns the lanes of the run, if its own programs are meant.
    fn lanes(&self) -> Option<&Arc<Lanes>> {
        match self {
            Self::Run(lanes) => Some(lanes),
            Self::Companion(_) => None,
        }
    }
}

/// The last rules, and what they follow from.
struct Followed {
    policy: Arc<Policy>,
    /// Numbers of the lists that narrowed and widened the run.
    changes: (usize, usize),
    rules: Arc<Narrowed>,
}

impl Control for Office {
    fn rules(&self) -> Arc<Narrowed> {
        let policy = self.launcher.way_out.policy.policy();
        let mut known = self.rules.lock();
        let record = self.run.record.borrow();
        let changes = (record.narrowed.len(), record.widened.len());
        if let Some(known) = &*known
            && Arc::ptr_eq(&known.policy, &policy)
            && known.changes == changes
        {
            return Arc::clone(&known.rules);
        }
        let rules = Arc::new(match self.side.companion() {
            None => rules_of(&policy, &record),
            Some(companion) => rules_beside(&policy, &record, companion.name()),
        });
        *known = Some(Followed { policy, changes, rules: Arc::clone(&rules) });
        rules
    }

    fn rules_of_run(&self) -> Arc<Narrowed> {
        match self.side {
            Side::Run(_) => self.rules(),
            Side::Companion(_) => {
                let policy = self.launcher.way_out.policy.policy();
                Arc::new(rules_of(&policy, &self.run.record.borrow()))
            }
        }
    }

    fn record(&self, mut event: Event) -> BoxFuture<'_, bool> {
        if let Some((companion, details)) = self.side.companion().zip(event.details.as_mut()) {
            details["companion"] = companion.name().into();
        }
        let spec = self.run.spec();
        let event = event.principal(&spec.principal).agent(&spec.agent_id);
        async move { self.audit.record(event).await.is_ok() }.boxed()
    }

    fn share_limits(&self, pid: u32) {
        match &self.side {
            Side::Run(lanes) => lanes.share_limits(pid),
            Side::Companion(companion) => companion.share_limits(pid),
        }
    }

    fn calls(&self) -> Vec<String> {
        self.side.lanes().map(|lanes| lanes.calls()).unwrap_or_default()
    }

    fn ancestry(&self, pairs: Vec<(String, String)>) -> BoxFuture<'_, Vec<Option<bool>>> {
        match &self.side {
            Side::Run(lanes) => lanes.host_worker().ancestry(pairs).boxed(),
            // Its commits are in no repository that the daemon reads.
            Side::Companion(_) => ready(vec![None; pairs.len()]).boxed(),
        }
    }

    fn companion(&self, name: &HostName, port: u16) -> Option<Result<(), String>> {
        // A companion reaches no other.
        self.side.lanes()?;
        let companions = self.run.companions();
        let companion = companions.get(name.as_str())?;
        Some(companion.refuses(port).map_or(Ok(()), Err))
    }

    fn connect(&self, name: &HostName, port: u16) -> BoxFuture<'_, Result<OwnedFd, String>> {
        let companion = self.run.companions().get(name.as_str()).cloned();
        async move {
            let companion = companion.ok_or("the run has no such companion")?;
            companion.connect(port).await
        }
        .boxed()
    }

    fn ask(&self, question: Question, given_up: CancellationToken) -> BoxFuture<'_, Answer> {
        let Some(reviewers) = self.launcher.way_out.reviewers.get() else {
            let why = "the daemon is starting; connect again".to_owned();
            return ready(Answer::Unasked(why)).boxed();
        };
        let commands = self.side.lanes().map(|lanes| lanes.command_lines()).unwrap_or_default();
        let calls = self.calls();
        let companion = self.side.companion().map(|companion| companion.name().to_owned());
        async move {
            let preview = match &question.push {
                Some(push) => self.preview(push).await,
                None => None,
            };
            let run = Arc::clone(&self.run);
            reviewers.ask(Asked { run, question, calls, commands, companion, preview, given_up }).await
        }
        .boxed()
    }
}

impl Office {
    /// Returns the effects of a push, as the run's repository shows them. `None` if it cannot be read.
    async fn preview(&self, push: &PushQuestion) -> Option<PushPreview> {
        let ids = push.updates.iter().map(|update| (update.old.clone(), update.new.clone()));
        let ids: Vec<_> = ids.collect();
        // Only ids of SHA-1 can be looked for.
        if ids.iter().any(|(old, new)| old.len() != SHA1 || new.len() != SHA1) {
            return None;
        }
        self.side.lanes()?.host_worker().preview_push(ids).await
    }
}

/// The way out of a container.
struct Door {
    side: Side,
    /// First process of the container.
    process: OwnedFd,
    /// Id under which the container was made.
    made_as: RunId,
    has_bundle: bool,
    placeholders: Vec<Placeholder>,
}

impl Runs {
    /// Steers the connections of a container, and starts the process that hears them.
    async fn open_door(&self, run: &Arc<Run>, door: Door) -> Result<Arc<Egress>, Refusal> {
        let record = run.record();
        let Door { side, process, made_as, has_bundle, placeholders } = door;
        let (directories, out) = (&self.launcher.directories, &self.launcher.way_out);
        let view = match side.companion() {
            None => run.connections.clone(),
            Some(companion) => run.connections.of_companion(companion.name()),
        };
        let control = Office {
            audit: self.audit.clone(),
            launcher: self.launcher.clone(),
            run: run.clone(),
            side,
            rules: Mutex::default(),
        };
        let setup = Setup {
            run: record.id.to_string(),
            process,
            names: directories.egress(&record.id.to_string()),
            block: out.block,
            program: out.program.clone(),
            outside: out.outside.clone(),
            control: Arc::new(control),
            trust: has_bundle.then(|| {
                let bundle = directories.bundle(&made_as.to_string());
                Trust { java: java_store(&bundle), chromium: chromium_policy(&bundle), bundle }
            }),
            placeholders: placeholders.into_iter().map(Placeholder::into_parts).collect(),
            who: Who { run: record.id.to_string(), principal: record.spec.principal.clone() },
            view,
        };
        let egress = Egress::start(setup).await.map_err(|error| {
            tracing::error!(run = %record.id, error = %chain(&error), "the egress of a run cannot be started");
            Refusal::new(
                Reason::PreconditionFailed,
                format!("{error}. `coffer doctor` shows what the host lacks; a run without `egress` needs none of it"),
            )
        })?;
        Ok(Arc::new(egress))
    }

    /// Starts the egress of a companion whose container was made as `made_as`.
    pub(crate) async fn open_beside(
        &self,
        run: &Arc<Run>,
        companion: &Arc<Companion>,
        (made_as, has_bundle): (RunId, bool),
    ) -> Result<(), Refusal> {
        let record = run.record();
        let name = companion.name();
        let rules = rules_beside(&self.launcher.way_out.policy.policy(), &record, name);
        let process = companion.process();
        let process =
            process.map_err(|_| Refusal::new(Reason::PreconditionFailed, "it has ended at once"))?;
        let placeholders = placeholders::beside(&self.store, record.id, name, &rules);
        let side = Side::Companion(companion.clone());
        let egress = self.open_door(run, Door { side, process, made_as, has_bundle, placeholders }).await?;
        run.beside.write().insert(name.to_owned(), egress);
        Ok(())
    }
}

impl Shared {
    /// Starts the egress of a run that was launched with a name server.
    pub(crate) async fn begin_egress(&self, lanes: &Arc<Lanes>) -> Result<(), Refusal> {
        let record = self.record.borrow().clone();
        let fingerprint = record.started.as_ref().and_then(|started| started.fingerprint.as_ref());
        let Some(fingerprint) = fingerprint.filter(|fingerprint| fingerprint.resolver.is_some()) else {
            return Ok(());
        };
        let rules = rules_of(&self.runs.launcher.way_out.policy.policy(), &record);
        let door = Door {
            side: Side::Run(lanes.clone()),
            process: network_of(lanes, "`egress` needs an engine of this host")?,
            made_as: fingerprint.made_as(record.id),
            has_bundle: fingerprint.bundles.is_some(),
            placeholders: placeholders::of_run(&self.runs.store, record.id, &rules),
        };
        let egress = self.runs.open_door(&self.run, door).await?;
        lanes.host_worker().set_way_out(Arc::new(Streams(Arc::downgrade(&egress))));
        *self.run.egress.write() = Some(egress);
        Ok(())
    }

    /// Starts the egress of each companion that a previous daemon has launched with a name server, and that has not ended.
    pub(crate) async fn begin_egress_beside(&self) -> Result<(), Refusal> {
        let companions = self.run.companions();
        for known in self.run.record().companions {
            let launched = known.launched.filter(|launched| launched.resolver.is_some());
            let live = companions.get(&known.name).filter(|companion| companion.exit().is_none());
            if let Some((launched, live)) = launched.zip(live) {
                let made = (launched.made_as, launched.bundles.is_some());
                match self.runs.open_beside(&self.run, live, made).await {
                    // It may have ended meanwhile.
                    Err(refusal) if live.exit().is_none() => return Err(refusal),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Ends the egress of the run and of its companions, with all connections.
    pub(crate) async fn end_egress(&self) {
        let of_run = self.run.egress.write().take();
        let beside = std::mem::take(&mut *self.run.beside.write());
        join_all(of_run.iter().chain(beside.values()).map(|egress| egress.end())).await;
    }
}
