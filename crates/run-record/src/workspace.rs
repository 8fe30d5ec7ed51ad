//! The workspace of a run, and the changes of an overlay.

use std::path::PathBuf;

use host_launch::Owner;
use identity::{BaseId, CheckpointId, RunId};
use serde::{Deserialize, Serialize};
use timestamp::Timestamp;
use wire::v1;

use super::Record;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workspace {
    /// An existing directory, used in place.
    Bind {
        /// Path as requested.
        path: PathBuf,
    },
    /// A directory of the daemon, empty at first.
    Managed,
    /// A clone of a local repository, in a directory of the daemon.
    Clone {
        /// Path as requested.
        repository: PathBuf,
        /// Branch, tag or commit, or `None` for HEAD.
        revision: Option<String>,
    },
    /// A clone of a repository on a server, in a directory of the daemon.
    CloneOfUrl {
        /// Address in its canonical form, without a user or password.
        url: String,
        /// Branch, tag or full id of a commit, or `None` for the server's HEAD.
        revision: Option<String>,
        /// Most commits down each line of the history; 0 is all of it.
        depth: u32,
    },
    /// A directory of the daemon that an earlier run left.
    Kept { workspace: RunId },
    /// An existing directory under a layer that receives the changes.
    Overlay {
        /// Path as requested.
        path: PathBuf,
    },
    /// A base under a layer that receives the changes.
    Base { base: BaseId },
    /// The copied workspace of a checkpoint under a layer that receives the changes.
    Checkpoint {
        checkpoint: CheckpointId,
        /// Managed or cloned workspace of which the checkpoint has the copy. AcceptRun applies changes to it.
        of: RunId,
    },
}

/// A tree of the daemon beneath the layers of runs. It never changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beneath {
    Base(BaseId),
    /// The copied workspace in a checkpoint.
    Checkpoint(CheckpointId),
}

impl From<BaseId> for Beneath {
    fn from(base: BaseId) -> Self {
        Self::Base(base)
    }
}

impl From<CheckpointId> for Beneath {
    fn from(checkpoint: CheckpointId) -> Self {
        Self::Checkpoint(checkpoint)
    }
}

impl Workspace {
    /// Returns true if it is a layer over files that the run does not change.
    pub fn is_layered(&self) -> bool {
        matches!(self, Self::Overlay { .. } | Self::Base { .. } | Self::Checkpoint { .. })
    }

    /// Returns the tree of the daemon on which it is a layer.
    pub fn beneath(&self) -> Option<Beneath> {
        match self {
            Self::Base { base } => Some(Beneath::Base(*base)),
            Self::Checkpoint { checkpoint, .. } => Some(Beneath::Checkpoint(*checkpoint)),
            _ => None,
        }
    }

    /// Returns true if the daemon makes a directory for it, which outlives the run.
    pub fn is_made(&self) -> bool {
        matches!(self, Self::Managed) || self.is_clone()
    }

    /// Returns true if it is a clone of a repository.
    pub fn is_clone(&self) -> bool {
        matches!(self, Self::Clone { .. } | Self::CloneOfUrl { .. })
    }

    /// Returns the name of its kind in ListWorkspaces.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bind { .. } => "bind",
            Self::Managed | Self::Kept { .. } => "managed",
            Self::Clone { .. } | Self::CloneOfUrl { .. } => "clone",
            Self::Overlay { .. } => "overlay",
            Self::Base { .. } => "base",
            Self::Checkpoint { .. } => "checkpoint",
        }
    }

    /// Returns the workspace of a run that begins on checkpoint `checkpoint` of run `run`, which had this workspace.
    ///
    /// A checkpoint of a layer has the changes alone, and goes on the tree that was beneath. So no layer is on a layer.
    #[must_use]
    pub fn forked(&self, checkpoint: CheckpointId, run: RunId) -> Self {
        match self {
            Self::Kept { workspace } => Self::Checkpoint { checkpoint, of: *workspace },
            Self::Managed | Self::Clone { .. } | Self::CloneOfUrl { .. } | Self::Bind { .. } => {
                Self::Checkpoint { checkpoint, of: run }
            }
            Self::Overlay { .. } | Self::Base { .. } | Self::Checkpoint { .. } => self.clone(),
        }
    }

    pub(crate) fn to_wire(&self) -> v1::Workspace {
        use v1::workspace::Source;
        let source = match self {
            Self::Bind { path } => {
                Source::Bind(v1::BindWorkspace { path: path.to_string_lossy().into_owned() })
            }
            Self::Managed => Source::Managed(v1::ManagedWorkspace::default()),
            Self::Kept { workspace } => {
                Source::Managed(v1::ManagedWorkspace { workspace_id: workspace.to_string() })
            }
            Self::Overlay { path } => {
                Source::Overlay(v1::OverlayWorkspace { path: path.to_string_lossy().into_owned() })
            }
            Self::Base { base } => Source::Base(v1::BaseWorkspace { base_id: base.to_string() }),
            Self::Checkpoint { checkpoint, .. } => {
                Source::Checkpoint(v1::CheckpointWorkspace { checkpoint_id: checkpoint.to_string() })
            }
            Self::Clone { repository, revision } => Source::Clone(v1::CloneWorkspace {
                repository: repository.to_string_lossy().into_owned(),
                revision: revision.clone().unwrap_or_default(),
                ..v1::CloneWorkspace::default()
            }),
            Self::CloneOfUrl { url, revision, depth } => Source::Clone(v1::CloneWorkspace {
                url: url.clone(),
                revision: revision.clone().unwrap_or_default(),
                depth: *depth,
                ..v1::CloneWorkspace::default()
            }),
        };
        v1::Workspace { source: Some(source) }
    }
}

/// A managed or cloned workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Id of the run for which it was made, and of the workspace itself.
    pub id: RunId,
    /// Principal of the run for which it was made.
    pub principal: String,
    pub created_at: Timestamp,
    /// Kind of the workspace when it was made.
    pub workspace: Workspace,
    /// Quota of the run for which it was made, bytes. It counts if files are nested too deep to be measured. 0 if the daemon that made it did
    /// not store it.
    #[serde(default)]
    pub disk_bytes: u64,
}

impl Kept {
    /// Returns the workspace of this run if the daemon makes one for it.
    pub fn of(record: &Record) -> Option<Self> {
        record.spec.workspace.is_made().then(|| Self {
            id: record.id,
            principal: record.spec.principal.clone(),
            created_at: record.created_at,
            workspace: record.spec.workspace.clone(),
            disk_bytes: record.spec.limits.disk().bytes,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    pub changes: Changes,
    /// Time at which it was made, by the clock of the file system: seconds since 1970, and nanoseconds.
    pub since: (i64, u32),
    /// Inode of the directory beneath. A different directory may be at its path later.
    pub inode: u64,
    pub owner: Owner,
    /// True if an accept was begun, so that some of the changes may have been applied.
    pub begun: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changes {
    /// The changes are in the overlay's layer.
    Pending,
    /// The changes are in the directory beneath.
    Accepted,
    Discarded,
}

impl Changes {
    pub(crate) fn to_wire(self) -> v1::run::Changes {
        match self {
            Self::Pending => v1::run::Changes::Pending,
            Self::Accepted => v1::run::Changes::Accepted,
            Self::Discarded => v1::run::Changes::Discarded,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_a_layer_on_a_whole_copy_or_on_what_its_origin_is_on() {
        let (checkpoint, run, kept) = (CheckpointId::new(), RunId::new(), RunId::new());
        let on = |of| Workspace::Checkpoint { checkpoint, of };
        let clone = Workspace::Clone { repository: "/srv/a".into(), revision: None };
        let url = "https://git.example.org/org/app".to_owned();
        let of_url = Workspace::CloneOfUrl { url, revision: Some("main".into()), depth: 1 };
        assert_eq!(of_url.forked(checkpoint, run), on(run));
        assert!(of_url.is_made() && clone.is_made() && !Workspace::Kept { workspace: kept }.is_made());
        assert_eq!((of_url.kind(), clone.kind()), ("clone", "clone"));
        assert_eq!(Workspace::Managed.forked(checkpoint, run), on(run));
        assert_eq!(clone.forked(checkpoint, run), on(run));
        assert_eq!(Workspace::Kept { workspace: kept }.forked(checkpoint, run), on(kept));
        for layered in [
            Workspace::Overlay { path: "/srv/a".into() },
            Workspace::Base { base: BaseId::new() },
            Workspace::Checkpoint { checkpoint: CheckpointId::new(), of: kept },
        ] {
            assert_eq!(layered.forked(checkpoint, run), layered, "a fork of a fork is on the same tree");
            assert!(layered.is_layered());
        }
        assert_eq!(on(kept).beneath(), Some(Beneath::Checkpoint(checkpoint)));
        assert_eq!(Workspace::Managed.beneath(), None);
    }
}
