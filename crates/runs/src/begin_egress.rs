//! The egress of a run, which begins and ends with it.

use std::future::ready;
use std::sync::Arc;

use audit::Event;
use audit_service::AuditLog;
use containers::java_store;
use egress::{Answer, Control, Egress, Question, Setup, Trust};
use egress_rules::{Narrowed, Rules};
use executor::Lanes;
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
use crate::record::Record;
use crate::run::Run;
use crate::shared::Shared;
use crate::way_in::network_of;
use crate::way_out::{Asked, narrowed};

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

    fn ask(&self, question: Question, given_up: CancellationToken) -> BoxFuture<'_, Answer> {
        let Some(reviewers) = self.launcher.way_out.reviewers.get() else {
            let why = "the daemon is starting; connect again".to_owned();
            return ready(Answer::Unasked(why)).boxed();
        };
        let (calls, commands) = (self.lanes.calls(), self.lanes.command_lines());
        reviewers.ask(Asked { run: Arc::clone(&self.run), question, calls, commands, given_up })
    }
}

/// Returns the rules for a run's connections under a policy.
///
/// A profile that is gone allows nothing.
fn rules_of(policy: &Policy, record: &Record) -> Narrowed {
    match policy.profile(&record.spec.profile) {
        Some(profile) => narrowed(profile, &record.narrowed).and_widened(record.widened.iter().cloned()),
        None => Narrowed::new(Rules::none()),
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
                Trust { java: java_store(&bundle), bundle }
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
        *self.run.egress.write() = Some(Arc::new(egress));
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
