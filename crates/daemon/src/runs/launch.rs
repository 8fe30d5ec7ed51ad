//! From a validated run to a container whose agent answers: each step undone when a later one fails.
//!
//! ```text
//!  workspace ─► state directory ─► mounts ─► create ─► start ─► read back & compare ─► agent ─► hello ─► READY
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use containers::{
    Access, ContainerCgroup, ContainerId, ContainerName, Engine, EngineError, EngineFacts, Hardening, IdMap,
    ImageReference, MountError, MountSlot, MountSpec, Propagation, RunFacts, RunUser, UsableImage,
};
use jail::Mount;
use ops::Reason;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tokio::task::block_in_place;

use super::record::{Ownership, Record, Started, Workspace};
use super::remove::remove_tree;
use super::workspace::{self, Directory, Purpose, Roots};
use crate::executor::{AgentLane, HandLane, Lanes};
use crate::rpc::Principal;
use crate::status::Refusal;

/// Where the daemon keeps what it makes.
#[derive(Debug, Clone)]
pub(crate) struct Directories {
    pub(crate) state: PathBuf,
}

impl Directories {
    /// Managed and cloned workspaces.
    pub(crate) fn workspace(&self, run: &str) -> PathBuf {
        self.state.join("workspaces").join(run)
    }

    /// `/state` of a run.
    pub(crate) fn run_state(&self, run: &str) -> PathBuf {
        self.state.join("runs").join(run)
    }

    /// Mount points for the engine to bind.
    pub(crate) fn slots(&self, run: &str) -> PathBuf {
        self.mounts().join(run)
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
    /// The agent's binary on the host.
    pub(crate) agent: PathBuf,
    pub(crate) default_image: UsableImage,
    pub(crate) directories: Directories,
    pub(crate) roots: Roots,
}

/// A run that takes calls.
pub(crate) struct Launched {
    pub(crate) started: Started,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) remains: Remains,
}

/// What has to be taken away when a run ends.
#[derive(Default)]
pub(crate) struct Remains {
    container: Option<ContainerId>,
    slots: Vec<MountSlot>,
    slot_directory: Option<PathBuf>,
    /// Made for this run; goes only when its launch fails, or when the run is deleted.
    made: Vec<PathBuf>,
}

impl Launcher {
    /// Launches `record`'s run. When it fails nothing is left.
    pub(crate) async fn launch(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
    ) -> Result<Launched, Refusal> {
        let mut remains = Remains::default();
        match self.steps(record, wanted, principal, &mut remains).await {
            Ok((started, lanes)) => Ok(Launched { started, lanes, remains }),
            Err(refusal) => {
                remains.made_too(self.engine.as_ref()).await;
                Err(refusal)
            }
        }
    }

    async fn steps(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        remains: &mut Remains,
    ) -> Result<(Started, Arc<Lanes>), Refusal> {
        let run = record.id.to_string();
        let image = self.image(wanted.image.as_ref()).await?;
        let pkg = match &record.spec.pkg_path {
            Some(path) => {
                Some(block_in_place(|| self.roots.open("pkg_path", path, Purpose::Show, principal))?)
            }
            None => None,
        };
        let workspace = self.workspace(record, principal, remains).await?;
        let state_path = self.directories.run_state(&run);
        let state = block_in_place(|| workspace::make(&state_path, workspace.owner))
            .map_err(|error| Refusal::internal("making the run's state directory", &error))?;
        remains.made.push(state_path);

        let mut directories = vec![
            (Mount::Project, &workspace, wanted.workspace_access),
            (Mount::State, &state, Access::ReadWrite),
        ];
        if let Some(pkg) = &pkg {
            directories.push((Mount::Pkg, pkg, Access::ReadOnly));
        }
        let (mounts, user, ownership) = block_in_place(|| self.mounts(&run, &directories, remains))?;

        let facts = RunFacts {
            run_id: run.clone(),
            instance_id: self.instance.clone(),
            image: image.clone(),
            user,
            mounts,
            agent: self.agent.clone(),
            labels: std::collections::BTreeMap::new(),
        };
        let hardening = wanted.hardening.clone().fitted(self.host.cpus);
        let spec = containers::container_spec(&hardening, &facts)
            .map_err(|error| Refusal::internal("describing the container", &error))?;
        let name = ContainerName::parse(&format!("cofferdam-{run}"))
            .map_err(|error| Refusal::internal("naming the container", &error))?;
        let container = self.engine.create(&spec, &name).await.map_err(engine_refusal)?;
        remains.container = Some(container.clone());
        self.engine.start(&container).await.map_err(engine_refusal)?;

        let inspection = self.engine.inspect(&container).await.map_err(engine_refusal)?;
        let mismatches = containers::verify(&spec, &inspection);
        if !mismatches.is_empty() {
            let list: Vec<_> = mismatches.iter().map(ToString::to_string).collect();
            tracing::error!(run, mismatches = ?list, "the engine did not apply the hardening that was asked for");
            let fields: Vec<_> = mismatches.into_iter().map(|mismatch| mismatch.field).collect();
            return Err(Refusal::new(
                Reason::EngineUnavailable,
                format!(
                    "the engine did not apply the asked hardening ({}); no run is started like this",
                    fields.join(", ")
                ),
            ));
        }
        let report = containers::report(&spec, &inspection);

        let agent = AgentLane::connect(self.engine.clone(), container.clone(), user).await?;
        if let Some(pid) = agent.host_pid() {
            block_in_place(|| arrived(pid, &directories))?;
        }
        let hand = HandLane::new(&workspace, &state, pkg.as_ref())
            .map_err(|error| Refusal::internal("preparing the host lane", &error))?;
        let started = Started {
            image_id: image.id().to_string(),
            container_id: container.to_string(),
            hardening: report.lines.into_iter().map(|line| (line.name, line.value)).collect(),
            ownership,
            workspace_path: workspace.path.clone(),
        };
        Ok((started, Arc::new(Lanes::new(agent, hand))))
    }

    async fn image(&self, reference: Option<&ImageReference>) -> Result<UsableImage, Refusal> {
        let Some(reference) = reference else { return Ok(self.default_image.clone()) };
        match self.engine.image(reference).await.map_err(engine_refusal)? {
            Some(facts) => facts.usable().map_err(|refused| Refusal::invalid("image", refused)),
            None => Err(Refusal::new(
                Reason::NotFound,
                format!(
                    "image: the engine has no image {reference}; the operator loads it, nothing is pulled"
                ),
            )),
        }
    }

    async fn workspace(
        &self,
        record: &Record,
        principal: &Principal,
        remains: &mut Remains,
    ) -> Result<Directory, Refusal> {
        let path = self.directories.workspace(&record.id.to_string());
        match &record.spec.workspace {
            Workspace::Bind { path } => {
                block_in_place(|| self.roots.open("workspace.bind.path", path, Purpose::Own, principal))
            }
            Workspace::Managed => {
                let made = workspace::make(&path, workspace::owner_for(principal))
                    .map_err(|error| Refusal::internal("making the workspace", &error))?;
                remains.made.push(path);
                Ok(made)
            }
            Workspace::Clone { repository, revision } => {
                let source =
                    self.roots.open("workspace.clone.repository", repository, Purpose::Own, principal)?;
                let made = workspace::make(&path, source.owner)
                    .map_err(|error| Refusal::internal("making the workspace", &error))?;
                remains.made.push(path);
                crate::executor::clone_repository(&source, &made, revision.as_deref()).await?;
                Ok(made)
            }
        }
    }

    /// Idmapped mounts where the kernel and the file systems can; else the container runs under the owner's uid.
    fn mounts(
        &self,
        run: &str,
        directories: &[(Mount, &Directory, Access)],
        remains: &mut Remains,
    ) -> Result<(Vec<MountSpec>, RunUser, Ownership), Refusal> {
        let slots = self.directories.slots(run);
        std::fs::create_dir_all(&slots)
            .map_err(|error| Refusal::internal("making the mount points", &error))?;
        remains.slot_directory = Some(slots.clone());
        match prepare(&slots, directories, Some(RunUser::DEFAULT)) {
            Ok(prepared) => {
                let mounts = bind(&prepared, directories)?;
                remains.slots = prepared;
                Ok((mounts, RunUser::DEFAULT, Ownership::Idmapped))
            }
            Err(MountError::Unsupported(cause)) => {
                tracing::warn!(run, cause = %cause, "no idmapped mounts: the container runs under the owner's uid");
                let owner = directories.first().map(|(_, directory, _)| directory.owner);
                let user = owner.and_then(|owner| RunUser::new(owner.uid, owner.gid).ok()).ok_or_else(|| {
                    Refusal::invalid(
                        "workspace",
                        "belongs to root, and this file system has no idmapped mounts: give it to an ordinary user",
                    )
                })?;
                let prepared = prepare(&slots, directories, None)
                    .map_err(|error| Refusal::internal("mounting the workspace", &error))?;
                let mounts = bind(&prepared, directories)?;
                remains.slots = prepared;
                Ok((mounts, user, Ownership::OwnerUid))
            }
            Err(error) => Err(Refusal::internal("mounting the workspace", &chain(&error))),
        }
    }
}

fn prepare(
    slots: &Path,
    directories: &[(Mount, &Directory, Access)],
    seen: Option<RunUser>,
) -> Result<Vec<MountSlot>, MountError> {
    use std::os::fd::AsFd as _;
    directories
        .iter()
        .map(|(mount, directory, access)| {
            let map = seen.map(|seen| IdMap {
                disk_uid: directory.owner.uid,
                disk_gid: directory.owner.gid,
                seen_uid: seen.uid(),
                seen_gid: seen.gid(),
            });
            MountSlot::prepare(
                directory.handle.as_fd(),
                &slots.join(&mount.container_path()[1..]),
                map,
                *access,
            )
        })
        .collect()
}

fn bind(slots: &[MountSlot], directories: &[(Mount, &Directory, Access)]) -> Result<Vec<MountSpec>, Refusal> {
    slots
        .iter()
        .zip(directories)
        .map(|(slot, (mount, _, access))| {
            let read_only = *access == Access::ReadOnly;
            MountSpec::new(slot.path(), mount.container_path(), read_only, Propagation::Private)
                .map_err(|error| Refusal::internal("describing a mount", &error))
        })
        .collect()
}

/// Makes sure that what the container sees at its mount points is what was meant to be there.
///
/// The engine binds by path, in its own view of the host's mounts. Where that view differs from ours (a daemon in a
/// container whose state directory is not shared with the host), the bind finds an empty directory and says nothing.
fn arrived(agent_host_pid: u32, directories: &[(Mount, &Directory, Access)]) -> Result<(), Refusal> {
    let failed = |error: Errno| Refusal::internal("looking at the container's mounts", &error);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        rustix::fs::open(format!("/proc/{agent_host_pid}/root"), flags, Mode::empty()).map_err(failed)?;
    for (mount, directory, _) in directories {
        // The mount point itself, in a root that nobody can write: nothing beneath it is looked at.
        let place = &mount.container_path()[1..];
        let seen =
            rustix::fs::openat(&root, place, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?;
        let seen = rustix::fs::fstat(&seen).map_err(failed)?;
        let meant = rustix::fs::fstat(&directory.handle).map_err(failed)?;
        if (seen.st_dev, seen.st_ino) != (meant.st_dev, meant.st_ino) {
            return Err(Refusal::new(
                Reason::EngineUnavailable,
                format!(
                    "the engine shows something else than was mounted at {}: state_dir must be a shared mount at the same path for the engine; see deploy/README.md",
                    mount.alias()
                ),
            ));
        }
    }
    Ok(())
}

impl Remains {
    /// Removes the container and the mounts. What the run made stays for its reader.
    pub(crate) async fn take_away(&mut self, engine: &dyn Engine) {
        if let Some(container) = self.container.take()
            && let Err(error) = engine.remove(&container).await
        {
            tracing::error!(%container, error = %chain(&error), "a container was not removed; the next start tries again");
        }
        for slot in self.slots.drain(..) {
            if let Err(error) = block_in_place(|| slot.release()) {
                tracing::error!(error = %chain(&error), "a mount was not removed; the next start tries again");
            }
        }
        if let Some(directory) = self.slot_directory.take() {
            let _ = std::fs::remove_dir(directory);
        }
    }

    /// After a launch that failed: everything goes.
    async fn made_too(mut self, engine: &dyn Engine) {
        self.take_away(engine).await;
        for path in self.made.drain(..) {
            remove_tree(path).await;
        }
    }
}

/// What an engine's failure means for a client.
#[allow(clippy::needless_pass_by_value)] // the shape that `map_err` asks for
pub(crate) fn engine_refusal(error: EngineError) -> Refusal {
    tracing::error!(error = %chain(&error), "the engine failed");
    match error {
        EngineError::Unreachable { .. } => Refusal::new(
            Reason::EngineUnavailable,
            "the container engine does not answer; `coffer doctor` on the daemon's host says more",
        ),
        EngineError::TimedOut { attempt, .. } => {
            Refusal::new(Reason::EngineUnavailable, format!("the container engine did not {attempt} in time"))
        }
        EngineError::NotFound { attempt }
        | EngineError::Conflict { attempt, .. }
        | EngineError::Api { attempt, .. }
        | EngineError::Malformed { attempt, .. } => Refusal::new(
            Reason::EngineUnavailable,
            format!("the container engine failed to {attempt}; the daemon's log has its words"),
        ),
    }
}

/// An error with its causes, for the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The container's cgroup, when commands can have leaves in it.
pub(crate) fn cgroup_of(host_pid: u32, container: &ContainerId) -> Option<ContainerCgroup> {
    match ContainerCgroup::of_pid(host_pid, container) {
        Ok(cgroup) => Some(cgroup),
        Err(error) => {
            tracing::warn!(error = %chain(&error), "commands of this run get no cgroup of their own; the agent ends them");
            None
        }
    }
}
