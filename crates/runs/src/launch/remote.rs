//! Clones a repository of a server for a run that does not exist yet, through a separate `coffer-egress`.

use std::future::ready;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use audit::Event;
use audit_service::AuditLog;
use egress::{Answer, Control, Egress, Question, TaskSetup};
use egress_rules::Narrowed;
use executor::{Directory, give_streams, launcher};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use host_launch::TreeBounds;
use mirrors::{Mirrors, Wanted};
use model_usage::Who;
use operations::Reason;
use policy::InForce;
use refusal::{Refusal, chain};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::record::Record;
use crate::way_out::{Streams, WayOut, repository_url, rules_of};

/// Name on record of the clone, in place of a call's id.
const CALL: &str = "clone";

/// The parts of the daemon that clones from servers use.
pub struct RemoteClones {
    pub mirrors: Arc<Mirrors>,
    pub audit: Arc<AuditLog>,
}

/// A repository on a server, as the request named it.
pub(super) struct Remote<'a> {
    pub(super) url: &'a str,
    pub(super) revision: Option<&'a str>,
    pub(super) depth: u32,
    /// Cancelled when the run is stopped.
    pub(super) stopping: &'a CancellationToken,
}

impl RemoteClones {
    /// Clones a repository of a server into `workspace`, within `most`, under the rules of the run.
    pub(super) async fn clone_into(
        &self,
        workspace: &Directory,
        remote: Remote<'_>,
        record: &Record,
        out: &WayOut,
        most: TreeBounds,
    ) -> Result<(), Refusal> {
        let url = repository_url(remote.url)?;
        let wanted = Wanted {
            url: &url,
            principal: &record.spec.principal,
            revision: remote.revision,
            depth: remote.depth,
            most,
            workspace: workspace
                .handle
                .try_clone()
                .map_err(|error| Refusal::internal("preparing the clone", &error))?,
            owner: workspace.owner,
            stopping: remote.stopping.clone(),
        };
        let office = Office { policy: out.policy.clone(), audit: self.audit.clone(), record: record.clone() };
        let rules = office.rules();
        let connections = Connections { out, office: Arc::new(office), begun: Mutex::default() };
        let cloned = self.mirrors.clone_repository(&launcher(), wanted, &rules, &connections).await?;
        tracing::info!(run = %record.id, url = %url, commit = cloned.commit, "a run was cloned from a server");
        Ok(())
    }
}

/// The daemon, for the connections of a clone.
struct Office {
    policy: InForce,
    audit: Arc<AuditLog>,
    record: Record,
}

impl Control for Office {
    fn rules(&self) -> Arc<Narrowed> {
        Arc::new(rules_of(&self.policy.policy(), &self.record))
    }

    fn record(&self, event: Event) -> BoxFuture<'_, bool> {
        let spec = &self.record.spec;
        let event = event.principal(&spec.principal).agent(&spec.agent_id);
        async move { self.audit.record(event).await.is_ok() }.boxed()
    }

    /// Does nothing: there is no container so far. The process has its own limits.
    fn share_limits(&self, _pid: u32) {}

    fn calls(&self) -> Vec<String> {
        Vec::new()
    }

    fn ancestry(&self, pairs: Vec<(String, String)>) -> BoxFuture<'_, Vec<Option<bool>>> {
        // A clone pushes nothing.
        ready(vec![None; pairs.len()]).boxed()
    }

    fn ask(&self, _question: Question, _given_up: CancellationToken) -> BoxFuture<'_, Answer> {
        let why = "no reviewer is asked before the run exists; the rule has to say `allow`";
        ready(Answer::Unasked(why.to_owned())).boxed()
    }
}

/// The connections of one clone, and the socket over which the worker asks for them.
struct Connections<'a> {
    out: &'a WayOut,
    office: Arc<Office>,
    begun: Mutex<Option<Begun>>,
}

struct Begun {
    egress: Arc<Egress>,
    streams: tokio::task::JoinHandle<()>,
}

impl mirrors::WayOut for Connections<'_> {
    fn begin(&self) -> BoxFuture<'_, Result<OwnedFd, Refusal>> {
        async move {
            let record = &self.office.record;
            let run = record.id.to_string();
            let setup = TaskSetup {
                task: run.clone(),
                block: self.out.block,
                program: self.out.program.clone(),
                outside: self.out.outside.clone(),
                control: self.office.clone(),
                who: Who { run, principal: record.spec.principal.clone() },
            };
            let egress = Egress::for_task(setup).await.map_err(|error| {
                tracing::error!(run = %record.id, error = %chain(&error), "the egress of a clone cannot be started");
                Refusal::new(Reason::PreconditionFailed, format!("workspace.clone.url: {error}"))
            })?;
            let egress = Arc::new(egress);
            let (ours, theirs) = host_launch::dialing::pair()
                .map_err(|error| Refusal::internal("preparing the clone", &error))?;
            let streams: Arc<dyn executor::WayOut> = Arc::new(Streams(Arc::downgrade(&egress)));
            let streams = tokio::spawn(give_streams(ours, Some(streams), CALL.to_owned()));
            *self.begun.lock().await = Some(Begun { egress, streams });
            Ok(theirs)
        }
        .boxed()
    }

    fn end(&self) -> BoxFuture<'_, ()> {
        async move {
            if let Some(Begun { egress, streams }) = self.begun.lock().await.take() {
                streams.abort();
                egress.end().await;
            }
        }
        .boxed()
    }
}
