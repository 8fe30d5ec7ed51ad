//! From a validated run to a container whose guest answers: each step undone when a later one fails.
//!
//! ```text
//!  workspace ─► state directory ─► mounts ─► create ─► start ─► read back & compare ─► guest ─► hello ─► READY
//! ```

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use containers::accounts::Accounts;
use containers::{
    Access, ContainerName, ContainerSpec, Engine, EngineFacts, Hardening, ImageReference, Inspection,
    MountSpec, RunFacts, RunUser, UsableImage,
};
use executor::{Directory, GuestLane, HostWorkerLane, Lanes, engine_refusal};
use identity::{Principal, RunId};
use jail::Mount;
use ops::Reason;
use refusal::Refusal;
use store::run::{LaunchFingerprint, Owner, Place, Record, Started, Workspace};
use tokio::task::block_in_place;

use super::default_image::DefaultImageSource;
use super::mounting::{Shown, arrived, mount};
use super::remove::remove_tree;
use super::resources::RunResources;
use super::source::Source;
use super::workspace::{self, Purpose, Roots};
use crate::quota::Projects;
use crate::{embedded, execution_log};

/// Where the daemon keeps what it makes.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    pub(crate) state: PathBuf,
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

    /// Removes what was made as a run's workspace.
    pub(super) async fn remove_workspace(&self, run: RunId) {
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
    pub(crate) fn bin(&self) -> PathBuf {
        self.state.join("bin")
    }

    /// Recordings of operators' sessions in a run.
    pub(crate) fn recordings(&self, run: &str) -> PathBuf {
        self.state.join("sessions").join(run)
    }

    /// What the host lane keeps of a run: what was deleted, and what was begun and is not over.
    pub(crate) fn private(&self, run: &str) -> PathBuf {
        self.privates().join(run)
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
    pub(crate) fn counted(&self) -> [PathBuf; 3] {
        [self.state.join("runs"), self.workspaces(), self.state.join("overlays")]
    }

    /// What counts against the quota of a run that lives.
    pub(crate) fn counted_of(&self, record: &Record) -> Vec<PathBuf> {
        let run = record.id.to_string();
        let mut counted = vec![self.run_state(&run)];
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

/// How a run's container is to be, from the policy.
pub(crate) struct Wanted {
    pub(crate) hardening: Hardening,
    /// The image; `None` is the default image.
    pub(crate) image: Option<ImageReference>,
    pub(crate) workspace_access: Access,
}

/// Launches runs. One for the daemon.
pub(crate) struct Launcher {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) host: EngineFacts,
    pub(crate) instance: String,
    /// The guest's binary on the host.
    pub(crate) guest: PathBuf,
    pub(crate) default_image: DefaultImageSource,
    pub(crate) directories: Directories,
    pub(crate) roots: Roots,
    pub(crate) projects: Projects,
}

/// A run that takes calls.
pub(crate) struct Launched {
    pub(crate) started: Started,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) resources: RunResources,
}

impl Launcher {
    /// Launches `record`'s run. When it fails nothing is left.
    pub(crate) async fn launch(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
    ) -> Result<Launched, Refusal> {
        let mut resources = RunResources::default();
        match self.steps(record, wanted, principal, &mut resources).await {
            Ok((started, lanes)) => Ok(Launched { started, lanes, resources }),
            Err(refusal) => {
                resources.made_too(self.engine.as_ref()).await;
                self.projects.settle(record.id);
                Err(refusal)
            }
        }
    }

    async fn steps(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        resources: &mut RunResources,
    ) -> Result<(Started, Arc<Lanes>), Refusal> {
        let run = record.id.to_string();
        let (image, busybox) = self.image(wanted.image.as_ref()).await?;
        let pkg = match &record.spec.pkg_path {
            Some(path) => {
                Some(block_in_place(|| self.roots.open("pkg_path", path, Purpose::Show, principal))?)
            }
            None => None,
        };
        block_in_place(|| self.projects.allot(record, record.spec.limits.disk()));
        let Source { directory: workspace, layer } = self.workspace(record, principal, resources).await?;
        let state_path = self.directories.run_state(&run);
        let state = block_in_place(|| self.make(record, &state_path, workspace.owner))
            .map_err(|error| Refusal::internal("making the run's state directory", &error))?;
        resources.made.push(state_path);
        let log_path = self.directories.run_log(&run);
        resources.made.push(log_path.clone());
        let log = block_in_place(|| {
            execution_log::prepare(&log_path, state.handle.as_fd())?;
            workspace::open_own(&log_path)
        });
        let log = log.map_err(|error| Refusal::internal("making the run's execution log", &error))?;
        // It stays the daemon's own through its mount.
        let log = Directory { is_mapped: true, ..log };
        let private_path = self.directories.private(&run);
        let private = block_in_place(|| workspace::make(&private_path, workspace.owner))
            .map_err(|error| Refusal::internal("making the run's private directory", &error))?;
        resources.made.push(private_path);

        let mut directories = vec![
            Shown::new(Mount::Project, &workspace, wanted.workspace_access),
            Shown::new(Mount::State, &state, Access::ReadWrite),
            Shown::log(&log),
        ];
        if let Some(pkg) = &pkg {
            directories.push(Shown::new(Mount::Pkg, pkg, Access::ReadOnly));
        }
        let (mounts, user, ownership) =
            block_in_place(|| mount(&self.directories.slots(&run), &run, &directories, resources))?;

        let spec = self.describe(record, wanted, image.clone(), user, mounts, self.guest.clone())?;
        let name = ContainerName::parse(&format!("cofferdam-{run}"))
            .map_err(|error| Refusal::internal("naming the container", &error))?;
        let container = self.engine.create(&spec, &name).await.map_err(engine_refusal)?;
        resources.container = Some(container.clone());
        self.engine.start(&container).await.map_err(engine_refusal)?;

        let inspection = self.engine.inspect(&container).await.map_err(engine_refusal)?;
        if let Some(fields) = differs(&run, &spec, &inspection) {
            return Err(Refusal::new(
                Reason::EngineUnavailable,
                format!(
                    "the engine did not apply the asked hardening ({fields}); no run is started like this"
                ),
            ));
        }
        let report = containers::report(&spec, &inspection);

        let guest = GuestLane::connect(self.engine.clone(), container.clone(), user).await?;
        if let Some(pid) = guest.host_pid() {
            block_in_place(|| arrived(pid, &directories, &self.accounts(user)?))?;
        }
        let place = |directory: &Directory| {
            Place::of(&directory.handle)
                .map_err(|error| Refusal::internal("looking at the run's directories", &error))
        };
        let fingerprint = LaunchFingerprint {
            container_started: inspection.started_at,
            guest: self.guest.clone(),
            owner: workspace.owner,
            is_mapped: workspace.is_mapped,
            workspace: place(&workspace)?,
            state: place(&state)?,
            private: place(&private)?,
            pkg: pkg.as_ref().map(place).transpose()?,
            log: Some(place(&log)?),
        };
        let host_worker = HostWorkerLane::new(&workspace, &state, pkg.as_ref(), &private)
            .map_err(|error| Refusal::internal("preparing the host lane", &error))?;
        let started = Started {
            image_id: image.id().to_string(),
            container_id: container.to_string(),
            hardening: report
                .lines
                .into_iter()
                .map(|line| (line.name, line.value))
                .chain(busybox.map(|digest| ("busybox".to_owned(), digest)))
                .collect(),
            ownership,
            workspace_path: workspace.path.clone(),
            layer,
            fingerprint: Some(fingerprint),
        };
        Ok((started, Arc::new(Lanes::new(guest, host_worker))))
    }

    /// Makes a directory of the daemon's own that counts against the run's quota.
    pub(super) fn make(&self, record: &Record, path: &Path, owner: Owner) -> io::Result<Directory> {
        let made = workspace::make(path, owner)?;
        self.projects.assign(record.id, made.handle.as_fd());
        Ok(made)
    }

    /// The run's container: a function of profile and facts, at its launch and whenever it is looked at again.
    pub(super) fn describe(
        &self,
        record: &Record,
        wanted: &Wanted,
        image: UsableImage,
        user: RunUser,
        mounts: Vec<MountSpec>,
        guest: PathBuf,
    ) -> Result<ContainerSpec, Refusal> {
        let facts = RunFacts {
            run_id: record.id.to_string(),
            instance_id: self.instance.clone(),
            image,
            user,
            mounts,
            guest,
            accounts: block_in_place(|| self.accounts(user))?,
            labels: std::collections::BTreeMap::new(),
        };
        containers::container_spec(&wanted.hardening, &facts)
            .map_err(|error| Refusal::internal("describing the container", &error))
    }

    /// The names of users and groups of a container that runs as `user`.
    pub(super) fn accounts(&self, user: RunUser) -> Result<Accounts, Refusal> {
        embedded::place_accounts(&self.directories.bin(), user)
            .map_err(|error| Refusal::internal("writing the container's users and groups", &error))
    }

    /// The image, and of the default image what it is made of.
    async fn image(
        &self,
        reference: Option<&ImageReference>,
    ) -> Result<(UsableImage, Option<String>), Refusal> {
        let Some(reference) = reference else {
            let made = self.default_image.get().await?;
            return Ok((made.image, Some(made.busybox)));
        };
        match self.engine.image(reference).await.map_err(engine_refusal)? {
            Some(facts) => {
                let usable = facts.usable().map_err(|refused| Refusal::invalid("image", refused))?;
                Ok((usable, None))
            }
            None => Err(Refusal::new(
                Reason::NotFound,
                format!(
                    "image: the engine has no image {reference}; the operator loads it, nothing is pulled"
                ),
            )),
        }
    }
}

/// The fields in which the container is not as described; `None` when it is. Values are for the operator's log alone.
pub(super) fn differs(run: &str, spec: &ContainerSpec, inspection: &Inspection) -> Option<String> {
    let mismatches = containers::verify(spec, inspection);
    if mismatches.is_empty() {
        return None;
    }
    let list: Vec<_> = mismatches.iter().map(ToString::to_string).collect();
    tracing::error!(run, mismatches = ?list, "the hardening in force is not what was asked for");
    let fields: Vec<_> = mismatches.into_iter().map(|mismatch| mismatch.field).collect();
    Some(fields.join(", "))
}
