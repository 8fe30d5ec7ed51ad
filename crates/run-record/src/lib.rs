#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod automatic;
mod cold_because;
mod companion;
mod failed;
mod hold;
mod launch_fingerprint;
mod left;
mod workspace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use audit::{Event, Kind};
use containers::Amount;
use egress_rules::{Rules, Widened};
use identity::{CheckpointId, Principal, RunId, TokenHash};
use operations::{Evidence, Fault, ToolFailure};
use policy::ContainerLimits;
use serde::{Deserialize, Serialize};
use timestamp::Timestamp;
use wire::v1;

pub use automatic::{Automatic, Every};
pub use cold_because::ColdBecause;
pub use companion::{Companion, CompanionLaunch, CompanionState};
pub use failed::Failed;
pub use hold::{Held, Hold};
pub use launch_fingerprint::{LaunchFingerprint, Linked, Place};
pub use left::left_by_principal;
pub use workspace::{Beneath, Changes, Kept, Layer, Workspace};

/// Phase of a run's life.
///
/// ```text
///                PAUSED ────┐
///                 │  ▲       │
///                 ▼  │       ▼
///  CREATING ───► READY ──► STOPPING ──► STOPPED
///      │           │           │
///      └───────────┴───────────┴──────► FAILED
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its container is being made.
    Creating,
    Ready,
    /// Its commands are frozen; a hold says why.
    Paused,
    /// It is being ended.
    Stopping,
    /// It has ended as requested.
    Stopped,
    /// It has ended by itself.
    Failed,
}

impl State {
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }

    /// Returns the name in the API.
    pub fn as_str(self) -> &'static str {
        self.to_wire().as_str_name()
    }

    pub fn to_wire(self) -> v1::run::State {
        match self {
            Self::Creating => v1::run::State::Creating,
            Self::Ready => v1::run::State::Ready,
            Self::Paused => v1::run::State::Paused,
            Self::Stopping => v1::run::State::Stopping,
            Self::Stopped => v1::run::State::Stopped,
            Self::Failed => v1::run::State::Failed,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: u64,
    pub cpu_millis: u32,
    pub pids: u32,
    pub file_size_bytes: u64,
    pub open_files: u32,
    /// Limit on the disk space that the daemon uses for the run, in bytes. 0 in records of daemons without such limits.
    #[serde(default)]
    pub disk_bytes: u64,
    #[serde(default)]
    pub disk_files: u64,
    /// Limit on stored output of its processes, sessions and terminals, in bytes. 0 in records of daemons without such a limit.
    #[serde(default)]
    pub output_bytes: u64,
}

impl Limits {
    /// Returns the limit on the disk space that the daemon uses for the run.
    pub fn disk(&self) -> Amount {
        match (self.disk_bytes, self.disk_files) {
            // The record is from a daemon without such limits: the strict ones apply.
            (0, _) | (_, 0) => Amount { bytes: 1 << 30, files: 50_000 },
            (bytes, files) => Amount { bytes, files },
        }
    }

    /// Returns the limit on stored output of its processes, sessions and terminals, in bytes.
    pub fn output(&self) -> u64 {
        // The record is from a daemon without such a limit: a profile's default applies.
        if self.output_bytes == 0 { ContainerLimits::OUTPUT_MIB << 20 } else { self.output_bytes }
    }
}

/// The settings requested when the run was made, reduced to what the host can give. They never change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    pub profile: String,
    pub image: String,
    pub workspace: Workspace,
    pub pkg_path: Option<PathBuf>,
    pub agent_id: String,
    pub role: String,
    pub limits: Limits,
    pub ttl: Option<Duration>,
    pub idle_timeout: Option<Duration>,
    pub labels: BTreeMap<String, String>,
    pub principal: String,
    /// Hash of the token that was made with the run, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenHash>,
    /// Environment variables of all its commands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of the variables whose values the store has sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_env: Vec<String>,
    /// Time after which the run ends unless its lease is renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// Directories of the container that must exist and belong to the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable_paths: Vec<String>,
    /// Checkpoint with whose files it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<ForkedFrom>,
    /// Checkpoints that the daemon makes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Automatic>,
    /// Names of the companions that the request had. Their variables are not stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<String>,
}

/// Checkpoint with whose files a run began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForkedFrom {
    pub checkpoint: CheckpointId,
    /// Run of which the checkpoint was made.
    pub run: RunId,
    /// Image of that run. Changes of its root are only for this image.
    pub image_id: String,
    /// Time since which the directory that takes the changes should be unchanged, by the clock of the file system.
    ///
    /// The layers of the origin are as old as the origin, over any number of forks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<(i64, u32)>,
}

/// Reason why a run ended by itself without a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    Ttl,
    IdleTimeout,
    Lease,
    /// The deadline of a drain of the node passed.
    NodeDrained,
}

impl EndCause {
    /// Returns the name in the audit log.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::IdleTimeout => "idle_timeout",
            Self::Lease => "lease",
            Self::NodeDrained => "node_drained",
        }
    }

    fn to_wire(self) -> v1::run::EndCause {
        match self {
            Self::Ttl => v1::run::EndCause::Ttl,
            Self::IdleTimeout => v1::run::EndCause::IdleTimeout,
            Self::Lease => v1::run::EndCause::Lease,
            Self::NodeDrained => v1::run::EndCause::NodeDrained,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub id: RunId,
    pub spec: Spec,
    pub state: State,
    pub failure: Option<String>,
    pub created_at: Timestamp,
    pub ready_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub started: Option<Started>,
    /// Number of daemons that the run has outlived.
    #[serde(default)]
    pub restarts: u32,
    /// Time at which this daemon took the run over, or `None` if it made the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_at: Option<Timestamp>,
    /// Holds that keep it paused, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Held>,
    /// The `ttl` that was set later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended: Option<Duration>,
    /// Hash of the token that was made for it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<TokenHash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_cause: Option<EndCause>,
    /// Reason of the failure, and whose it is. `None` in records of earlier releases, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<Failed>,
    /// Rules that its connections have to pass beside those of its profile, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub narrowed: Vec<Rules>,
    /// Rules that opened more than those of its profile, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub widened: Vec<Widened>,
    /// Containers beside it, in the order of their start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<Companion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub image_id: String,
    pub container_id: String,
    /// Name and value of each setting, as the engine confirmed it.
    pub hardening: Vec<(String, String)>,
    pub ownership: Ownership,
    pub workspace_path: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// `None` in records of daemons whose runs ended with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<LaunchFingerprint>,
    /// `None` for a warm run, and in records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_because: Option<ColdBecause>,
    /// Time that it waited for its companions after its own container was there.
    ///
    /// `None` without companions, and in records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waited_for_companions: Option<Duration>,
}

/// Mechanism by which the container gets access to the files of the workspace's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// An idmapped mount shows them as uid 1001's.
    Idmapped,
    /// The file system cannot be idmapped, so the container runs under the owner's uid.
    OwnerUid,
}

impl Record {
    /// Returns true if `principal` may see the run.
    pub fn is_seen_by(&self, principal: &Principal) -> bool {
        principal.may_see_run(self.id, &self.spec.profile, &self.spec.principal)
    }

    /// Makes the record of a new run.
    pub fn new(id: RunId, spec: Spec) -> Self {
        Self {
            id,
            spec,
            state: State::Creating,
            failure: None,
            created_at: Timestamp::now(),
            ready_at: None,
            ended_at: None,
            started: None,
            restarts: 0,
            adopted_at: None,
            holds: Vec::new(),
            extended: None,
            issued: None,
            end_cause: None,
            failed: None,
            narrowed: Vec::new(),
            widened: Vec::new(),
            companions: Vec::new(),
        }
    }

    /// Returns the maximum age of the run, counted from READY.
    pub fn ttl(&self) -> Option<Duration> {
        self.extended.or(self.spec.ttl)
    }

    /// Returns the hash of the token that now gives access to the run, if there is one.
    pub fn token(&self) -> Option<&TokenHash> {
        self.issued.as_ref().or(self.spec.token.as_ref())
    }

    pub fn enter(&mut self, state: State, failure: Option<ToolFailure>) {
        self.state = state;
        (self.failure, self.failed) = (None, None);
        if let Some(failure) = failure {
            self.fails_with(failure);
        }
        match state {
            State::Ready => drop(self.ready_at.get_or_insert_with(Timestamp::now)),
            State::Stopped | State::Failed => self.ended_at = Some(Timestamp::now()),
            State::Creating | State::Paused | State::Stopping => {}
        }
    }

    /// Returns the audit log's event about the run's state.
    pub fn event(&self, details: serde_json::Value) -> Event {
        let event = Event::new(Kind::RunState).run(self.id.to_string()).details(details);
        match &self.started {
            Some(started) => event.image(&started.image_id),
            None => event,
        }
    }

    /// Returns the id under which its container was made.
    ///
    /// `None` before it was launched, or if an earlier daemon recorded too little.
    pub fn made_as(&self) -> Option<RunId> {
        let fingerprint = self.started.as_ref()?.fingerprint.as_ref()?;
        Some(fingerprint.made_as(self.id))
    }

    /// Returns the ids under which the containers of its companions were made.
    pub fn companions_made_as(&self) -> impl Iterator<Item = RunId> {
        self.companions.iter().filter_map(|companion| Some(companion.launched.as_ref()?.made_as))
    }

    /// Returns whether its container was made before the run was requested.
    pub fn start_kind(&self) -> v1::run::StartKind {
        match (self.ready_at, self.made_as()) {
            (None, _) => v1::run::StartKind::Unspecified,
            (Some(_), Some(made_as)) if made_as != self.id => v1::run::StartKind::Warm,
            (Some(_), _) => v1::run::StartKind::Cold,
        }
    }

    /// Returns the reason that its container was made for it.
    pub fn cold_because(&self) -> Option<ColdBecause> {
        self.started.as_ref()?.cold_because
    }

    /// Returns the time that it waited for its companions after its own container was there.
    pub fn waited_for_companions(&self) -> Option<Duration> {
        self.started.as_ref()?.waited_for_companions
    }

    /// Returns the layer of a launched overlay.
    pub fn layer(&self) -> Option<Layer> {
        self.started.as_ref().and_then(|started| started.layer)
    }

    /// Returns true if the daemon still keeps changes of the run's overlay.
    pub fn has_pending_changes(&self) -> bool {
        self.layer().is_some_and(|layer| layer.changes == Changes::Pending)
    }

    /// Returns the time since which the directory that takes its changes should be unchanged, if its workspace is a layer.
    pub fn changes_since(&self) -> Option<(i64, u32)> {
        let layer = self.layer()?;
        let inherited = self.spec.forked_from.as_ref().and_then(|from| from.since);
        Some(inherited.unwrap_or(layer.since))
    }

    pub fn to_wire(&self) -> v1::Run {
        let spec = &self.spec;
        let started = self.started.as_ref();
        let path = |path: &PathBuf| path.to_string_lossy().into_owned();
        let hardening = started.map(|started| &started.hardening).into_iter().flatten();
        v1::Run {
            run_id: self.id.to_string(),
            profile: spec.profile.clone(),
            image: spec.image.clone(),
            workspace: Some(spec.workspace.to_wire()),
            pkg_path: spec.pkg_path.as_ref().map(path).unwrap_or_default(),
            agent_id: spec.agent_id.clone(),
            role: spec.role.clone(),
            limits: Some(limits_to_wire(&spec.limits)),
            ttl: self.ttl().map(wire::duration),
            idle_timeout: spec.idle_timeout.map(wire::duration),
            labels: spec.labels.clone().into_iter().collect(),
            state: self.state.to_wire().into(),
            failure: self.failure.clone().unwrap_or_default(),
            failure_reason: self.failed.as_ref().map(|failed| failed.reason.clone()).unwrap_or_default(),
            fault: self.fault().map_or(v1::Fault::Unspecified, Fault::to_wire).into(),
            evidence: self.failed.iter().flat_map(|failed| &failed.evidence).map(Evidence::to_wire).collect(),
            created_at: Some(self.created_at.to_wire()),
            ready_at: self.ready_at.map(Timestamp::to_wire),
            start_kind: self.start_kind().into(),
            cold_because: self.cold_because().map(ColdBecause::to_wire).unwrap_or_default().into(),
            hardening: hardening
                .map(|(name, value)| v1::HardeningFact { name: name.clone(), value: value.clone() })
                .collect(),
            image_id: started.map(|started| started.image_id.clone()).unwrap_or_default(),
            container_id: started.map(|started| started.container_id.clone()).unwrap_or_default(),
            ownership: started
                .map(|started| match started.ownership {
                    Ownership::Idmapped => "idmapped",
                    Ownership::OwnerUid => "owner-uid",
                })
                .unwrap_or_default()
                .to_owned(),
            workspace_path: started.map(|started| path(&started.workspace_path)).unwrap_or_default(),
            principal: spec.principal.clone(),
            ended_at: self.ended_at.map(Timestamp::to_wire),
            writable_paths: spec.writable_paths.clone(),
            restarts: self.restarts,
            adopted_at: self.adopted_at.map(Timestamp::to_wire),
            changes: self
                .layer()
                .map_or(v1::run::Changes::Unspecified, |layer| layer.changes.to_wire())
                .into(),
            holds: self.holds.iter().map(Held::to_wire).collect(),
            forked_from: spec.forked_from.as_ref().map(|from| v1::ForkedFrom {
                checkpoint_id: from.checkpoint.to_string(),
                run_id: from.run.to_string(),
            }),
            checkpoints: spec.checkpoints.map(Automatic::to_wire),
            companions: self.companions.iter().map(Companion::to_wire).collect(),
            // Only the daemon's measurement knows it; the caller adds it.
            disk: None,
            egress: None,
            model_use: None,
            // Left out of lists and streams, because the variables can be large.
            env: BTreeMap::new(),
            secret_env: spec.secret_env.clone(),
            lease: spec.lease.map(wire::duration),
            lease_ends_at: None,
            end_cause: self.end_cause.map_or(v1::run::EndCause::Unspecified, EndCause::to_wire).into(),
        }
    }
}

fn limits_to_wire(limits: &Limits) -> v1::Limits {
    v1::Limits {
        memory_bytes: limits.memory_bytes,
        cpu_millis: limits.cpu_millis,
        pids: limits.pids,
        file_size_bytes: limits.file_size_bytes,
        open_files: limits.open_files,
        disk_bytes: limits.disk_bytes,
        disk_files: limits.disk_files,
    }
}
