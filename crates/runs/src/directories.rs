//! Where the daemon keeps what it makes.

use std::path::PathBuf;

use identity::RunId;
use jail::Keeps;
use store::run::{Record, Workspace};

use crate::remove::remove_tree;

/// Where the daemon keeps what it makes.
#[derive(Debug, Clone)]
pub struct Directories {
    pub state: PathBuf,
}

impl Directories {
    /// A managed or cloned workspace.
    pub(crate) fn workspace(&self, run: &str) -> PathBuf {
        self.workspaces().join(run)
    }

    /// All managed and cloned workspaces.
    pub(crate) fn workspaces(&self) -> PathBuf {
        self.state.join("workspaces")
    }

    /// What an overlay keeps of a run's changes.
    pub(crate) fn layer(&self, run: &str) -> PathBuf {
        self.state.join("overlays").join(run)
    }

    /// What a writable root keeps of a run's changes.
    pub(crate) fn root_layer(&self, run: &str) -> PathBuf {
        self.root_layers().join(run)
    }

    /// The layers of all writable roots.
    pub(crate) fn root_layers(&self) -> PathBuf {
        self.state.join("roots")
    }

    /// Removes what was made as a run's workspace.
    pub(crate) async fn remove_workspace(&self, run: RunId) {
        remove_tree(self.workspace(&run.to_string())).await;
        remove_tree(self.layer(&run.to_string())).await;
    }

    /// `/state` of a run.
    pub(crate) fn run_state(&self, run: &str) -> PathBuf {
        self.state.join("runs").join(run)
    }

    /// `/state/logs` of a run.
    pub(crate) fn run_log(&self, run: &str) -> PathBuf {
        self.state.join("logs").join(run)
    }

    /// The guest's program, and files of the daemon's own that containers have.
    pub fn bin(&self) -> PathBuf {
        self.state.join("bin")
    }

    /// Recordings of operators' sessions in a run.
    pub fn recordings(&self, run: &str) -> PathBuf {
        self.state.join("sessions").join(run)
    }

    /// Processes of a run that outlive their calls: what is known of them, and what they wrote.
    pub(crate) fn processes(&self, run: &str) -> PathBuf {
        self.state.join("processes").join(run)
    }

    /// What the host lane keeps of a run: what was deleted, and what was begun and is not over.
    pub fn private(&self, run: &str) -> PathBuf {
        self.privates().join(run)
    }

    /// Uploads into a run until a call takes them. They count against the run's quota.
    pub(crate) fn uploads(&self, run: &str) -> PathBuf {
        self.private(run).join(Keeps::Uploads.name())
    }

    /// What the host lane keeps of all runs.
    pub(crate) fn privates(&self) -> PathBuf {
        self.state.join("host-worker")
    }

    /// Mount points for the engine to bind.
    pub(crate) fn slots(&self, run: &str) -> PathBuf {
        self.mounts().join(run)
    }

    /// Where what counts against runs' quotas lies: in each the directories of runs, by their ids.
    pub(crate) fn counted(&self) -> [PathBuf; 4] {
        [self.state.join("runs"), self.workspaces(), self.state.join("overlays"), self.root_layers()]
    }

    /// What counts against the quota of a run that lives.
    pub(crate) fn counted_of(&self, record: &Record) -> Vec<PathBuf> {
        let run = record.id.to_string();
        let mut counted = vec![self.run_state(&run), self.root_layer(&run)];
        match &record.spec.workspace {
            Workspace::Managed | Workspace::Clone { .. } => counted.push(self.workspace(&run)),
            Workspace::Kept { workspace } => counted.push(self.workspace(&workspace.to_string())),
            Workspace::Overlay { .. } => counted.push(self.layer(&run)),
            Workspace::Bind { .. } => {}
        }
        counted
    }

    /// All mount points.
    pub(crate) fn mounts(&self) -> PathBuf {
        self.state.join("mounts")
    }
}
