//! The egress of a run, which begins and ends with it.

use std::future::ready;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use audit::Event;
use audit_service::AuditLog;
use containers::{chromium_policy, java_store};
use egress::{Answer, Control, Egress, PushQuestion, Question, Setup, Trust};
use egress_rules::{HostName, Narrowed};
use executor::{Lanes, PushPreview};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use model_usage::Who;
use operations::Reason;
use parking_lot::Mutex;
use policy::Policy;
use refusal::{Refusal, chain};
use tokio_util::sync::CancellationToken;

use crate::launch::Launcher;
use crate::placeholders::{self, Placeholder};
use crate::run::Run;
use crate::shared::Shared;
use crate::way_in::network_of;
use crate::way_out::{Asked, Streams, rules_of};

/// Digits of an id of SHA-1.
const SHA1: usize = 40;

/// The daemon, for the connections of one run.
struct Office {
    audit: Arc<AuditLog>,
    launcher: Arc<Launcher>,
    run: Arc<Run>,
    lanes: Arc<Lanes>,
    rules: Mutex<Option<Followed>>,
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
        let rules = Arc::new(rules_of(&policy, &record));
        *known = Some(Followed { policy, changes, rules: Arc::clone(&rules) });
        rules
    }

    fn record(&self, event: Event) -> BoxFuture<'_, bool> {
        let spec = self.run.spec();
        let event = event.principal(&spec.principal).agent(&spec.agent_id);
        async move { self.audit.record(event).await.is_ok() }.boxed()
    }

    fn share_limits(&self, pid: u32) {
        self.lanes.share_limits(pid);
    }

    fn calls(&self) -> Vec<String> {
        self.lanes.calls()
    }

    fn ancestry(&self, pairs: Vec<(String, String)>) -> BoxFuture<'_, Vec<Option<bool>>> {
        self.lanes.host_worker().ancestry(pairs).boxed()
    }

    fn companion(&self, name: &HostName, port: u16) -> Option<Result<(), String>> {
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
        let (calls, commands) = (self.lanes.calls(), self.lanes.command_lines());
        async move {
            let preview = match &question.push {
                Some(push) => self.preview(push).await,
                None => None,
            };
            let run = Arc::clone(&self.run);
            reviewers.ask(Asked { run, question, calls, commands, preview, given_up }).await
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
        self.lanes.host_worker().preview_push(ids).await
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
        let directories = &self.runs.launcher.directories;
        let made_as = fingerprint.made_as(record.id).to_string();
        let out = &self.runs.launcher.way_out;
        let process = network_of(lanes, "`egress` needs an engine of this host")?;
        let control = Office {
            audit: self.runs.audit.clone(),
            launcher: self.runs.launcher.clone(),
            run: self.run.clone(),
            lanes: lanes.clone(),
            rules: Mutex::default(),
        };
        let rules = rules_of(&out.policy.policy(), &record);
        let placeholders = placeholders::of_run(&self.runs.store, record.id, &rules);
        let setup = Setup {
            run: record.id.to_string(),
            process,
            names: directories.egress(&record.id.to_string()).join("names"),
            block: out.block,
            program: out.program.clone(),
            outside: out.outside.clone(),
            control: Arc::new(control),
            trust: fingerprint.bundles.as_ref().map(|_| {
                let bundle = directories.bundle(&made_as);
                Trust { java: java_store(&bundle), chromium: chromium_policy(&bundle), bundle }
            }),
            placeholders: placeholders.into_iter().map(Placeholder::into_parts).collect(),
            who: Who { run: record.id.to_string(), principal: record.spec.principal.clone() },
        };
        let egress = Egress::start(setup).await.map_err(|error| {
            tracing::error!(run = %record.id, error = %chain(&error), "the egress of a run cannot be started");
            Refusal::new(
                Reason::PreconditionFailed,
                format!("{error}. `coffer doctor` shows what the host lacks; a run without `egress` needs none of it"),
            )
        })?;
        let egress = Arc::new(egress);
        lanes.host_worker().set_way_out(Arc::new(Streams(Arc::downgrade(&egress))));
        *self.run.egress.write() = Some(egress);
        Ok(())
    }

    /// Ends the run's egress, with all connections.
    pub(crate) async fn end_egress(&self) {
        let egress = self.run.egress.write().take();
        if let Some(egress) = egress {
            egress.end().await;
        }
    }
}
