//! A run as it is kept and shown.

mod hold;
mod launch_fingerprint;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use audit::{Event, Kind};
use containers::Amount;
use gateway::policy::ContainerLimits;
use identity::{Principal, RunId, TokenHash};
use serde::{Deserialize, Serialize};
use wire::v1;

pub use hold::{Held, Hold};
pub use launch_fingerprint::{LaunchFingerprint, Linked, Place};

use crate::time::Timestamp;

/// Where a run is in its life.
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
    /// Its commands stand still, see `freeze.rs`.
    Paused,
    /// It is being ended.
    Stopping,
    /// It has ended as asked.
    Stopped,
    /// It ended by itself.
    Failed,
}

impl State {
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }

    /// As the API names it.
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workspace {
    /// An existing directory, used in place.
    Bind {
        /// As it was asked for.
        path: PathBuf,
    },
    /// A directory of the daemon's, empty at first.
    Managed,
    /// A clone of a local repository, in a directory of the daemon's.
    Clone {
        /// As it was asked for.
        repository: PathBuf,
        /// Branch, tag or commit; `None`: HEAD.
        revision: Option<String>,
    },
    /// A directory of the daemon's that an earlier run has left.
    Kept { workspace: RunId },
    /// An existing directory under a layer that takes the changes.
    Overlay {
        /// As it was asked for.
        path: PathBuf,
    },
}

/// The owner of a workspace's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// A managed or cloned workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Of the run that it was made for, and its own.
    pub id: RunId,
    /// Of the run that it was made for.
    pub principal: String,
    pub created_at: Timestamp,
    /// What it was when it was made.
    pub workspace: Workspace,
}

impl Kept {
    /// What the run of this record gets, if the daemon makes something for it.
    pub fn of(record: &Record) -> Option<Self> {
        let made = matches!(record.spec.workspace, Workspace::Managed | Workspace::Clone { .. });
        made.then(|| Self {
            id: record.id,
            principal: record.spec.principal.clone(),
            created_at: record.created_at,
            workspace: record.spec.workspace.clone(),
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub changes: Changes,
    /// When it was made, by the clock of the file system: seconds since 1970, and nanoseconds.
    pub since: (i64, u32),
    /// Inode of the directory beneath: what is at its path later may be another one.
    pub inode: u64,
    pub owner: Owner,
    /// An accept was begun, so that some of the changes may have been applied.
    pub begun: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changes {
    /// They are in the overlay's layer.
    Pending,
    /// In the directory beneath.
    Accepted,
    Discarded,
}

impl Changes {
    fn to_wire(self) -> v1::run::Changes {
        match self {
            Self::Pending => v1::run::Changes::Pending,
            Self::Accepted => v1::run::Changes::Accepted,
            Self::Discarded => v1::run::Changes::Discarded,
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
    /// Of what the daemon keeps for the run on its disk. 0 in records of daemons that had no such limits.
    #[serde(default)]
    pub disk_bytes: u64,
    #[serde(default)]
    pub disk_files: u64,
    /// Most bytes that are kept of its processes, sessions and terminals. 0 in records of daemons that had no such limit.
    #[serde(default)]
    pub output_bytes: u64,
}

impl Limits {
    /// What the daemon may keep for the run on its disk.
    pub fn disk(&self) -> Amount {
        match (self.disk_bytes, self.disk_files) {
            // Made before there were such limits: the strict ones.
            (0, _) | (_, 0) => Amount { bytes: 1 << 30, files: 50_000 },
            (bytes, files) => Amount { bytes, files },
        }
    }

    /// What the daemon may keep of its processes, sessions and terminals.
    pub fn output(&self) -> u64 {
        // Made before there was such a limit: that of a profile that does not say.
        if self.output_bytes == 0 { ContainerLimits::OUTPUT_MIB << 20 } else { self.output_bytes }
    }
}

/// What was asked for when the run was made, within what the host can give. Never changed afterwards.
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
    /// Of the token that was made with it, when one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenHash>,
    /// Environment variables of all its commands.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of those whose values the store has sealed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_env: Vec<String>,
    /// It ends when nobody has renewed it for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Duration>,
    /// Directories of the container that are to be there and the run's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable_paths: Vec<String>,
}

/// Why a run ended that nobody stopped and that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    Ttl,
    IdleTimeout,
    Lease,
}

impl EndCause {
    /// As the audit log names it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::IdleTimeout => "idle_timeout",
            Self::Lease => "lease",
        }
    }

    fn to_wire(self) -> v1::run::EndCause {
        match self {
            Self::Ttl => v1::run::EndCause::Ttl,
            Self::IdleTimeout => v1::run::EndCause::IdleTimeout,
            Self::Lease => v1::run::EndCause::Lease,
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
    /// Daemons that the run has outlived.
    #[serde(default)]
    pub restarts: u32,
    /// When this daemon took it over from the one before; `None`: it made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopted_at: Option<Timestamp>,
    /// What keeps it paused, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<Held>,
    /// The `ttl` that it was given since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extended: Option<Duration>,
    /// Of the token that was made for it since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<TokenHash>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_cause: Option<EndCause>,
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
    /// Absent in records of daemons whose runs ended with them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<LaunchFingerprint>,
}

/// How the files of the workspace's owner look to the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ownership {
    /// An idmapped mount shows them as uid 1001's.
    Idmapped,
    /// The file system cannot: the container runs under the owner's uid.
    OwnerUid,
}

impl Record {
    /// Whether `principal` may look at the run.
    pub fn is_seen_by(&self, principal: &Principal) -> bool {
        principal.may_see_run(self.id, &self.spec.profile, &self.spec.principal)
    }

    /// A run that is about to be made.
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
        }
    }

    /// How old it may become, counted from READY.
    pub fn ttl(&self) -> Option<Duration> {
        self.extended.or(self.spec.ttl)
    }

    /// Of the token that opens the run now, if one does.
    pub fn token(&self) -> Option<&TokenHash> {
        self.issued.as_ref().or(self.spec.token.as_ref())
    }

    pub fn enter(&mut self, state: State, failure: Option<String>) {
        self.state = state;
        self.failure = failure;
        match state {
            State::Ready => drop(self.ready_at.get_or_insert_with(Timestamp::now)),
            State::Stopped | State::Failed => self.ended_at = Some(Timestamp::now()),
            State::Creating | State::Paused | State::Stopping => {}
        }
    }

    /// What the audit log says of the run's state.
    pub fn event(&self, details: serde_json::Value) -> Event {
        let event = Event::new(Kind::RunState).run(self.id.to_string()).details(details);
        match &self.started {
            Some(started) => event.image(&started.image_id),
            None => event,
        }
    }

    /// What its container was made as; `None` before it was launched, or by a daemon that kept too little.
    pub fn made_as(&self) -> Option<RunId> {
        let fingerprint = self.started.as_ref()?.fingerprint.as_ref()?;
        Some(fingerprint.made_as(self.id))
    }

    /// Whether its container was there before anybody asked for the run.
    pub fn start_kind(&self) -> v1::run::StartKind {
        match (self.ready_at, self.made_as()) {
            (None, _) => v1::run::StartKind::Unspecified,
            (Some(_), Some(made_as)) if made_as != self.id => v1::run::StartKind::Warm,
            (Some(_), _) => v1::run::StartKind::Cold,
        }
    }

    /// The layer of an overlay that was launched.
    pub fn layer(&self) -> Option<Layer> {
        self.started.as_ref().and_then(|started| started.layer)
    }

    /// Whether the daemon still keeps changes of the run's overlay.
    pub fn has_pending_changes(&self) -> bool {
        self.layer().is_some_and(|layer| layer.changes == Changes::Pending)
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
            workspace: Some(workspace_to_wire(&spec.workspace)),
            pkg_path: spec.pkg_path.as_ref().map(path).unwrap_or_default(),
            agent_id: spec.agent_id.clone(),
            role: spec.role.clone(),
            limits: Some(limits_to_wire(&spec.limits)),
            ttl: self.ttl().map(wire::duration),
            idle_timeout: spec.idle_timeout.map(wire::duration),
            labels: spec.labels.clone().into_iter().collect(),
            state: self.state.to_wire().into(),
            failure: self.failure.clone().unwrap_or_default(),
            created_at: Some(self.created_at.to_wire()),
            ready_at: self.ready_at.map(Timestamp::to_wire),
            start_kind: self.start_kind().into(),
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
            // Known to the daemon that counts it.
            disk: None,
            // As long as all variables of a run may be, so not in lists and streams.
            env: BTreeMap::new(),
            secret_env: spec.secret_env.clone(),
            lease: spec.lease.map(wire::duration),
            lease_ends_at: None,
            end_cause: self.end_cause.map_or(v1::run::EndCause::Unspecified, EndCause::to_wire).into(),
        }
    }
}

fn workspace_to_wire(workspace: &Workspace) -> v1::Workspace {
    use v1::workspace::Source;
    let source = match workspace {
        Workspace::Bind { path } => {
            Source::Bind(v1::BindWorkspace { path: path.to_string_lossy().into_owned() })
        }
        Workspace::Managed => Source::Managed(v1::ManagedWorkspace::default()),
        Workspace::Kept { workspace } => {
            Source::Managed(v1::ManagedWorkspace { workspace_id: workspace.to_string() })
        }
        Workspace::Overlay { path } => {
            Source::Overlay(v1::OverlayWorkspace { path: path.to_string_lossy().into_owned() })
        }
        Workspace::Clone { repository, revision } => Source::Clone(v1::CloneWorkspace {
            repository: repository.to_string_lossy().into_owned(),
            revision: revision.clone().unwrap_or_default(),
        }),
    };
    v1::Workspace { source: Some(source) }
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
