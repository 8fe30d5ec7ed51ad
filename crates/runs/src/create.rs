//! Makes a run: admits, stores and records it before its task launches it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::record::{Companion, Kept, Record, Spec, Workspace};
use ::tenants::{Amounts, Resource};
use audit::{Event, Kind};
use egress_rules::{Narrowed, Rules};
use futures_util::FutureExt as _;
use identity::{Principal, RunId};
use jail::RootMode;
use operations::{Evidence, Fault, Reason};
use policy::{ContainerPaths, Profile};
use refusal::{Refusal, chain};
use store::StoreError;
use tokio::sync::{mpsc, oneshot, watch};

use crate::launch::beside::starting;
use crate::launch::{OpenBeside, Wanted, wanted};
use crate::registry::{Runs, user_among};
use crate::request::Parsed;
use crate::run::Run;
use crate::shared::Shared;
use crate::stored;
use crate::tenants::{amounts, is_of_disk, used_by_all};
use crate::way_out::{self, Outward, narrowed};
use crate::{placeholders, task, variables};

/// Time for the measure of runs that have just ended, before a run is refused because of the space that they may take.
const MEASURED: Duration = Duration::from_secs(2);
/// Refusal of an id that a client chose.
const ID_IS_USED: &str = "run_id: an earlier run had this id, or a container has it: choose a new one";

impl Runs {
    /// Makes a run and waits until it is READY. The launch continues if the caller goes away.
    pub async fn create(
        self: &Arc<Self>,
        id: RunId,
        parsed: Parsed<'_>,
        principal: &Arc<Principal>,
        request: Option<(String, Vec<u8>)>,
    ) -> Result<Record, Refusal> {
        let Parsed { mut spec, secrets, egress, checkpoint, mut companions, profile } = parsed;
        // Kept until the run is launched.
        let _origin = self.begin_from(checkpoint, &mut spec, principal)?;
        self.check_deny_list(&spec, Some(profile))?;
        spec.ttl.map_or(Ok(()), |ttl| self.check_ttl(ttl))?;
        spec.ttl = spec.ttl.or(self.max_ttl);
        // Show the limit that will be in force.
        spec.limits.cpu_millis = containers::cpu_limit(spec.limits.cpu_millis, self.launcher.host.cpus);
        let beside = companions.iter().flatten().map(starting).collect();
        let record = Record { narrowed: egress, companions: beside, ..Record::new(id, spec) };
        let rules = narrowed(profile, &record.narrowed);
        self.launcher.way_out.check_secrets(&rules)?;
        for requested in companions.iter_mut().flatten() {
            if record.narrowed.iter().any(Rules::is_nothing) {
                requested.rules = Narrowed::new(Rules::none());
            }
            self.launcher.way_out.check_secrets(&requested.rules)?;
            let placeholders =
                placeholders::beside(&self.store, id, &requested.companion.name, &requested.rules);
            requested.placeholders = placeholders
                .into_iter()
                .map(|placeholder| (placeholder.variable, placeholder.value))
                .collect();
        }
        if let Workspace::CloneOfUrl { url, .. } = &record.spec.workspace {
            mirrors::check(&way_out::repository_url(url)?, &rules)?;
        }
        let outward = Outward::under(self.launcher.way_out.block, &rules, !companions.is_empty())?;
        let own = variables::environment(&record.spec, &secrets);
        let placeholders = placeholders::of_run(&self.store, id, &rules);
        let environment = variables::for_connections(&own, outward.has_bundle, &placeholders)?;
        let wanted = wanted(profile, &record.spec.image, &record.spec.limits, environment, outward)?;
        // A space is in no name of a variable. The next daemon has to hide these values, too.
        let of_companions = companions.iter().flatten().flat_map(|requested| {
            let name = &requested.companion.name;
            requested
                .secrets
                .iter()
                .map(move |(variable, value)| (format!("{name} {variable}"), value.clone()))
        });
        let secrets: BTreeMap<String, String> = secrets.into_iter().chain(of_companions).collect();
        let (record_sender, record_receiver) = watch::channel(record.clone());
        let (commands, command_receiver) = mpsc::channel(8);
        let run = Arc::new(Run::new(record_receiver, commands, Duration::ZERO));
        let (starting, stopping) = (run.starting.clone(), run.stopping.clone());
        let (runs, opened) = (self.clone(), run.clone());
        let open_beside: OpenBeside = Arc::new(move |companion, made| {
            let (runs, run) = (runs.clone(), opened.clone());
            async move { runs.open_beside(&run, &companion, made).await }.boxed()
        });
        let wanted = Wanted { companions, starting, open_beside: Some(open_beside), stopping, ..wanted };
        if let Workspace::Kept { workspace } = record.spec.workspace {
            // The turn prevents a deletion of the workspace between the check and the admission.
            let _settling = self.settle(workspace).await;
            self.check_kept(workspace, principal)?;
            self.admit_on_record(id, &run, principal).await?;
        } else {
            self.admit_on_record(id, &run, principal).await?;
        }
        self.audit.redactor().learn(&id.to_string(), secrets.values().map(String::as_str));
        if let Err(refusal) = self.put_on_record(&record, profile, request, secrets).await {
            self.forget(id);
            return Err(refusal);
        }

        let (ready, answer) = oneshot::channel();
        let shared = Shared {
            runs: self.clone(),
            run: run.clone(),
            record: record_sender,
            lanes: run.lanes.clone(),
            commands: command_receiver,
        };
        self.tasks.spawn(task::own(shared, wanted, principal.clone(), ready));
        answer
            .await
            .map_err(|_| Refusal::new(Reason::Internal, "the run's task ended before it was ready"))?
    }

    /// Stores an admitted run, takes its workspace, and records it. If one of these fails, nothing of it remains.
    async fn put_on_record(
        &self,
        record: &Record,
        profile: &Profile,
        request: Option<(String, Vec<u8>)>,
        secrets: BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        let (id, inserted) = (record.id, record.clone());
        let kept = Kept::of(record);
        let workspace = kept.clone();
        let stored = self.store.with(move |store| {
            let request = request.as_ref().map(|(id, digest)| (id.as_str(), digest.as_slice()));
            stored::insert_with(store, &inserted, request, &secrets, workspace.as_ref())
        });
        stored.await.map_err(|error| match error {
            StoreError::Retired => Refusal::new(Reason::AlreadyExists, ID_IS_USED),
            error if error.is_conflict() => Refusal::new(
                Reason::AlreadyExists,
                "request_id: a run with this id is being created now; try again",
            ),
            error => Refusal::internal("keeping the run", &chain(&error)),
        })?;
        if let Some(kept) = kept {
            self.kept().insert(kept.id, kept);
        }
        if self.audit.record(created(record, profile)).await.is_err() {
            let _ = self.forget_workspace(id).await;
            let _ = self.store.with(move |store| store.delete_run(id)).await;
            return Err(audit_service::Unavailable.into());
        }
        Ok(())
    }

    /// Removes the run from the table and its secrets from the redactor.
    pub(crate) fn forget(&self, id: RunId) {
        self.living().remove(&id);
        self.audit.redactor().forget(&id.to_string());
    }

    /// Admits a run, or records that it was refused.
    async fn admit_on_record(&self, id: RunId, run: &Arc<Run>, principal: &Principal) -> Result<(), Refusal> {
        let admitted = self.admit_measured(id, run, principal).await;
        if let Err(refusal) = &admitted {
            self.record_refused(refusal, principal, &run.spec().agent_id).await;
        }
        admitted
    }

    /// Admits a run. If its tenant lacks disk space, runs that have just ended are measured before it is refused.
    async fn admit_measured(&self, id: RunId, run: &Arc<Run>, principal: &Principal) -> Result<(), Refusal> {
        let refusal = match self.admit(id, run, principal) {
            Err(refusal) if is_of_disk(&refusal) => refusal,
            admitted => return admitted,
        };
        let (left, tenant) =
            (&self.launcher.projects.left, self.launcher.tenancy().tenant_of(&principal.name));
        let mut unmeasured = left.unmeasured();
        unmeasured.retain(|id| self.tenant_left(*id).is_some_and(|of| of == tenant));
        if unmeasured.is_empty() {
            return Err(refusal);
        }
        let _ = tokio::time::timeout(MEASURED, left.are_measured(&unmeasured)).await;
        self.admit(id, run, principal)
    }

    fn admit(&self, id: RunId, run: &Arc<Run>, principal: &Principal) -> Result<(), Refusal> {
        self.gate.check_open()?;
        // Before the lock of living runs, which comes after that of kept workspaces.
        let membership = self.launcher.tenancy().membership(&principal.name);
        self.check_ended(&membership)?;
        let counts_left = self.gate.counts() || membership.is_bounded(Resource::Disk);
        let left = if counts_left { self.left() } else { BTreeMap::default() };
        // A workspace outlives its run, and has its id. It would be counted, ended and deleted as that of the new run.
        let is_taken = self.has_kept(id);
        let mut living = self.living();
        // Under the lock: a stop that closes it later finds the run among the living ones.
        if self.tasks.is_closed() {
            return Err(Refusal::new(
                Reason::DaemonStopping,
                "the daemon is stopping and creates no further runs; try again after its start",
            ));
        }
        let containers = |run: &Run| 1 + run.record.borrow().companions.len();
        let (used, wanted) = (living.values().map(|run| containers(run)).sum::<usize>(), containers(run));
        if used + wanted > self.limit {
            let message = format!(
                "{} runs and companions may live, which is the daemon's limit, and this run is one too many: stop one first",
                self.limit
            );
            let refused = Refusal::new(Reason::Overloaded, message).by(Fault::Infrastructure);
            let refused = refused.with("limit", "limits.runs").with("used", used.to_string());
            let refused = refused.with("wanted", wanted.to_string()).with("max", self.limit.to_string());
            return Err(refused.shown_by(Evidence::new("limit.runs", self.limit)));
        }
        if living.contains_key(&id) || self.ended().contains_key(&id) {
            return Err(Refusal::new(Reason::AlreadyExists, "run_id: a run with this id already exists"));
        }
        if is_taken || living.values().any(|run| has_made_as(run, id)) {
            return Err(Refusal::new(Reason::AlreadyExists, ID_IS_USED));
        }
        if let Workspace::Kept { workspace } = run.spec().workspace
            && let Some(user) = user_among(&living, workspace)
        {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                format!("workspace.managed.workspace_id: run {user} uses it: stop it first"),
            ));
        }
        let used = if self.gate.counts() { used_by_all(&left, &living) } else { Amounts::default() };
        self.check_tenant(&membership, &living, left, &run.record.borrow())?;
        if let Workspace::Base { base } = run.spec().workspace {
            self.begin_on(base, principal)?;
        }
        // Last: a request that is refused for another reason takes no turn.
        self.gate.admit(membership.tenant(), amounts(&run.record.borrow()), used)?;
        living.insert(id, run.clone());
        Ok(())
    }

    /// Refuses new runs of a principal if the node makes none, before anything is prepared for them. The refusal is on record.
    pub async fn check_open(&self, principal: &Principal) -> Result<(), Refusal> {
        let open = self.gate.check_open();
        if let Err(refusal) = &open {
            self.record_refused(refusal, principal, "").await;
        }
        open
    }

    async fn record_refused(&self, refusal: &Refusal, principal: &Principal, agent: &str) {
        let by = (&*self.audit, &**self.launcher.tenancy());
        self.refused.record(by, refusal, &principal.name, agent).await;
    }

    /// Refuses a run on a `bind` workspace under a profile whose deny list is off.
    ///
    /// Each call checks again, because the policy may have changed since the run began.
    pub fn check_deny_list(&self, spec: &Spec, profile: Option<&Profile>) -> Result<(), Refusal> {
        profile.map_or(Ok(()), |profile| self.launcher.roots.on_bind.check(&spec.workspace, profile))
    }
}

/// Returns true if a container of the run, or of a companion, was made under this id, which its mount points have as their name.
fn has_made_as(run: &Run, id: RunId) -> bool {
    let record = run.record.borrow();
    record.made_as() == Some(id) || record.companions_made_as().any(|made_as| made_as == id)
}

/// Returns the record of a run that is made. It has the names of variables, and no values.
fn created(record: &Record, profile: &Profile) -> Event {
    let spec = &record.spec;
    let mut details = serde_json::json!({
        "profile": spec.profile,
        "image": spec.image,
        "workspace": spec.workspace,
        "labels": spec.labels,
        "token": spec.token.is_some(),
    });
    if let Some(from) = &spec.forked_from {
        details["forked_from"] = serde_json::json!(from);
    }
    if let Some(automatic) = &spec.checkpoints {
        details["checkpoints"] = serde_json::json!(automatic);
    }
    if !spec.env.is_empty() {
        details["variables"] = serde_json::json!(spec.env.keys().collect::<Vec<_>>());
    }
    if !spec.secret_env.is_empty() {
        details["sealed_variables"] = serde_json::json!(spec.secret_env);
    }
    let placeholders = &profile.egress.settings().placeholders;
    if !placeholders.is_empty() {
        details["placeholders"] = serde_json::json!(placeholders.keys().collect::<Vec<_>>());
    }
    if !profile.exec.deny_list.is_on() {
        details["deny_list"] = "off".into();
    }
    if profile.container_paths == ContainerPaths::Allow {
        details["container_paths"] = "allow".into();
    }
    if profile.root == RootMode::WritableLayer {
        details["root"] = "writable-layer".into();
        if profile.root_in_user_namespace {
            details["root_in_user_namespace"] = true.into();
        }
        details["writable_paths"] = serde_json::json!(spec.writable_paths);
    }
    if !record.companions.is_empty() {
        let named = |companion: &Companion| {
            let mut named = serde_json::json!({
                "name": companion.name, "image": companion.image, "ports": companion.ports, "memory_mib": companion.memory_mib,
            });
            if let Some(narrowed) = &companion.narrowed {
                named["egress"] = serde_json::json!(narrowed);
            }
            named
        };
        details["companions"] = record.companions.iter().map(named).collect();
    }
    if !record.narrowed.is_empty() {
        details["egress"] = serde_json::json!(record.narrowed);
    }
    Event::new(Kind::RunCreated)
        .run(record.id.to_string())
        .principal(&spec.principal)
        .agent(&spec.agent_id)
        .role(&spec.role)
        .details(details)
}
