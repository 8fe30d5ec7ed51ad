//! Making a run: admitted, stored and on record before its task launches it.

use std::sync::Arc;
use std::time::Duration;

use audit::{Event, Kind};
use gateway::Profile;
use gateway::policy::{ContainerPaths, RootMode};
use identity::{Principal, RunId};
use operations::Reason;
use refusal::{Refusal, chain};
use store::run::{Record, Spec, Workspace};
use tokio::sync::{mpsc, oneshot, watch};

use crate::launch::wanted;
use crate::registry::{Runs, user_among};
use crate::request::Parsed;
use crate::run::Run;
use crate::shared::Shared;
use crate::{task, variables};

impl Runs {
    /// Makes a run and waits until it is READY. The launch goes on when the caller goes away.
    pub async fn create(
        self: &Arc<Self>,
        id: RunId,
        parsed: Parsed<'_>,
        principal: &Arc<Principal>,
        request: Option<(String, Vec<u8>)>,
    ) -> Result<Record, Refusal> {
        let Parsed { mut spec, secrets, profile } = parsed;
        self.check_deny_list(&spec, Some(profile))?;
        spec.ttl.map_or(Ok(()), |ttl| self.check_ttl(ttl))?;
        spec.ttl = spec.ttl.or(self.max_ttl);
        // The limit that will be in force is the one to show.
        spec.limits.cpu_millis = containers::cpu_limit(spec.limits.cpu_millis, self.launcher.host.cpus);
        let record = Record::new(id, spec);
        let environment = variables::environment(&record.spec, &secrets);
        let wanted = wanted(profile, &record.spec.image, &record.spec.limits, environment)?;
        let (record_sender, record_receiver) = watch::channel(record.clone());
        let (commands, command_receiver) = mpsc::channel(8);
        let run = Arc::new(Run::new(record_receiver, commands, Duration::ZERO));
        if let Workspace::Kept { workspace } = record.spec.workspace {
            // Nobody deletes it in between.
            let _settling = self.settle(workspace).await;
            self.check_kept(workspace, principal)?;
            self.admit(id, &run)?;
        } else {
            self.admit(id, &run)?;
        }

        self.audit.redactor().learn(&id.to_string(), secrets.values().map(String::as_str));
        let inserted = record.clone();
        let stored = self.store.with(move |store| {
            let request = request.as_ref().map(|(id, digest)| (id.as_str(), digest.as_slice()));
            store.insert_run_with(&inserted, request, &secrets)
        });
        if let Err(error) = stored.await {
            self.forget(id);
            return Err(if error.is_conflict() {
                Refusal::new(
                    Reason::AlreadyExists,
                    "request_id: a run is being made under this id at this moment",
                )
            } else {
                Refusal::internal("keeping the run", &chain(&error))
            });
        }
        if let Err(refusal) = self.keep_workspace(&record).await {
            self.forget(id);
            let _ = self.store.with(move |store| store.delete_run(id)).await;
            return Err(refusal);
        }
        let mut details = serde_json::json!({
            "profile": record.spec.profile,
            "image": record.spec.image,
            "workspace": record.spec.workspace,
            "labels": record.spec.labels,
            "token": record.spec.token.is_some(),
        });
        // Names alone, of both kinds.
        let (plain, sealed) = (record.spec.env.keys(), &record.spec.secret_env);
        for (key, names) in
            [("variables", plain.collect::<Vec<_>>()), ("sealed_variables", sealed.iter().collect())]
        {
            if !names.is_empty() {
                details[key] = serde_json::json!(names);
            }
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
            details["writable_paths"] = serde_json::json!(record.spec.writable_paths);
        }
        let event = Event::new(Kind::RunCreated)
            .run(id.to_string())
            .principal(&record.spec.principal)
            .agent(&record.spec.agent_id)
            .role(&record.spec.role)
            .details(details);
        let recorded = self.audit.record(event).await;
        if recorded.is_err() {
            let _ = self.forget_workspace(id).await;
            self.forget(id);
            let _ = self.store.with(move |store| store.delete_run(id)).await;
            return Err(audit_service::Unavailable.into());
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

    /// Nothing of the run is there.
    pub(crate) fn forget(&self, id: RunId) {
        self.living().remove(&id);
        self.audit.redactor().forget(&id.to_string());
    }

    fn admit(&self, id: RunId, run: &Arc<Run>) -> Result<(), Refusal> {
        if self.tasks.is_closed() {
            return Err(Refusal::new(Reason::Overloaded, "the daemon is stopping and makes no more runs"));
        }
        let mut living = self.living();
        if living.len() >= self.limit {
            return Err(Refusal::new(
                Reason::Overloaded,
                format!("{} runs live already, which is the daemon's limit: stop one first", self.limit),
            ));
        }
        if living.contains_key(&id) || self.ended().contains_key(&id) {
            return Err(Refusal::new(Reason::AlreadyExists, "run_id: there is a run with this id already"));
        }
        if let Workspace::Kept { workspace } = run.spec().workspace
            && let Some(user) = user_among(&living, workspace)
        {
            return Err(Refusal::new(
                Reason::PreconditionFailed,
                format!("workspace.managed.workspace_id: run {user} uses it: stop it first"),
            ));
        }
        living.insert(id, run.clone());
        Ok(())
    }

    /// Refuses a run on a `bind` workspace under a profile whose deny list is off. A call asks again, because the policy may
    /// have changed since the run began.
    pub fn check_deny_list(&self, spec: &Spec, profile: Option<&Profile>) -> Result<(), Refusal> {
        profile.map_or(Ok(()), |profile| self.launcher.roots.on_bind.check(&spec.workspace, profile))
    }
}
