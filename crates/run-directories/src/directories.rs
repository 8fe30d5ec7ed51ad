//! Directories in which the daemon keeps its files.

use std::path::{Path, PathBuf};

use containers::{chromium_policy, java_store};
use identity::{BaseId, CheckpointId, RunId};
use jail::Keeps;
use run_record::{Beneath, Record, Workspace};

use leftovers::remove_tree;

/// Name of a run's bundle of certificates, beside the mount points of its container.
pub const BUNDLE: &str = "ca-bundle.pem";

/// Removes the certificates beside the mount points of a container.
#[expect(clippy::disallowed_methods, reason = "files of the daemon beside mount points that it made")]
pub fn remove_bundle(slots: &Path) {
    let bundle = slots.join(BUNDLE);
    let _ = std::fs::remove_file(java_store(&bundle));
    let _ = std::fs::remove_file(chromium_policy(&bundle));
    let _ = std::fs::remove_file(bundle);
}

/// Paths of the daemon's directories.
#[derive(Debug, Clone)]
pub struct Directories {
    pub state: PathBuf,
}

impl Directories {
    /// Returns the directory of a managed or cloned workspace.
    pub fn workspace(&self, run: &str) -> PathBuf {
        self.workspaces().join(run)
    }

    /// Returns the parent of all managed and cloned workspaces.
    pub fn workspaces(&self) -> PathBuf {
        self.state.join("workspaces")
    }

    /// Returns the parent of all bases.
    pub fn bases(&self) -> PathBuf {
        self.state.join("bases")
    }

    /// Returns the directory of a base's files.
    pub fn base(&self, base: BaseId) -> PathBuf {
        self.bases().join(base.to_string())
    }

    /// Returns the parent of all checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.state.join("checkpoints")
    }

    /// Returns the directory of a checkpoint, which has one directory for each of its parts.
    pub fn checkpoint(&self, checkpoint: CheckpointId) -> PathBuf {
        self.checkpoints().join(checkpoint.to_string())
    }

    /// Returns the tree that is beneath the layers of runs.
    pub fn beneath(&self, tree: Beneath) -> PathBuf {
        match tree {
            Beneath::Base(base) => self.base(base),
            Beneath::Checkpoint(checkpoint) => self.checkpoint(checkpoint).join("workspace/files"),
        }
    }

    /// Returns the directory of an overlay's layer, which has the changes of a run.
    pub fn layer(&self, run: &str) -> PathBuf {
        self.state.join("overlays").join(run)
    }

    /// Returns the directory of a writable root's layer, which has the changes of a run.
    pub fn root_layer(&self, run: &str) -> PathBuf {
        self.root_layers().join(run)
    }

    /// Returns the parent of the layers of all writable roots.
    pub fn root_layers(&self) -> PathBuf {
        self.state.join("roots")
    }

    /// Removes the directories that were made as a run's workspace.
    pub async fn remove_workspace(&self, run: RunId) {
        remove_tree(self.workspace(&run.to_string())).await;
        remove_tree(self.layer(&run.to_string())).await;
    }

    /// Returns the directory that a run has as `/state`.
    pub fn run_state(&self, run: &str) -> PathBuf {
        self.state.join("runs").join(run)
    }

    /// Returns the directory that a run has as `/state/logs`.
    pub fn run_log(&self, run: &str) -> PathBuf {
        self.state.join("logs").join(run)
    }

    /// Returns the directory of the guest's program and of other files that the daemon gives to containers.
    pub fn bin(&self) -> PathBuf {
        self.state.join("bin")
    }

    /// Returns the directory with the recordings of operators' sessions in a run.
    pub fn recordings(&self, run: &str) -> PathBuf {
        self.state.join("sessions").join(run)
    }

    /// Returns the directory for a run's processes that outlive their calls: their records, and their output.
    pub fn processes(&self, run: &str) -> PathBuf {
        self.state.join("processes").join(run)
    }

    /// Returns the directory in which the host lane keeps a run's deleted files and its unfinished operations.
    pub fn private(&self, run: &str) -> PathBuf {
        self.privates().join(run)
    }

    /// Returns the directory of uploads into a run that no call has taken yet. They count against the run's quota.
    pub fn uploads(&self, run: &str) -> PathBuf {
        self.private(run).join(Keeps::Uploads.name())
    }

    /// Returns the directory with the names that a run has resolved.
    pub fn egress(&self, run: &str) -> PathBuf {
        self.state.join("egress").join(run)
    }

    /// Returns the parent of the host lane's directories of all runs.
    pub fn privates(&self) -> PathBuf {
        self.state.join("host-worker")
    }

    /// Returns the directory of a run's mount points, which the engine binds.
    pub fn slots(&self, run: &str) -> PathBuf {
        self.mounts().join(run)
    }

    /// Returns the bundle of certificates of the container that was made as `made_as`. It is beside its mount points.
    pub fn bundle(&self, made_as: &str) -> PathBuf {
        self.slots(made_as).join(BUNDLE)
    }

    /// Returns the directories whose contents count against quotas. Each has one subdirectory for each run, named by the run's id.
    pub fn counted(&self) -> Vec<PathBuf> {
        vec![self.state.join("runs"), self.workspaces(), self.state.join("overlays"), self.root_layers()]
    }

    /// Returns the directories that count against the quota of a live run.
    pub fn counted_of(&self, record: &Record) -> Vec<PathBuf> {
        let run = record.id.to_string();
        let mut counted = vec![self.run_state(&run), self.root_layer(&run)];
        counted.extend(record.companions_made_as().map(|made_as| self.root_layer(&made_as.to_string())));
        match &record.spec.workspace {
            made if made.is_made() => counted.push(self.workspace(&run)),
            Workspace::Kept { workspace } => counted.push(self.workspace(&workspace.to_string())),
            layered if layered.is_layered() => counted.push(self.layer(&run)),
            _ => {}
        }
        counted
    }

    /// Returns the directories of a run that count against no quota of it, and stay until it is deleted: its log, its recordings, the output of
    /// its processes, and its trash.
    pub fn beside(&self, run: &str) -> Vec<PathBuf> {
        vec![self.run_log(run), self.recordings(run), self.processes(run), self.private(run)]
    }

    /// Returns the parent of the mount points of all runs.
    pub fn mounts(&self) -> PathBuf {
        self.state.join("mounts")
    }
}
