//! Reattaches a run that outlived its daemon.
//!
//! No daemon watched the run in the meantime. So nothing that was checked before is trusted: this repeats every check of a launch, and ends
//! every process that calls of the previous daemon left. A run that differs from its launch in any respect is not used.
//!
//! ```text
//!  terms of today ─► directories ─► mounts ─► container as described? ─► old processes ended ─► guest ─► host worker
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::record::{
    CompanionState, LaunchFingerprint, Layer, Linked, Ownership, Place, Record, Spec, Started,
};
use companions::Companions;
use containers::{
    Boundary, ContainerCgroup, ContainerId, ContainerState, Hardening, HostProcess, ImageReference,
    Inspection, LeftoversEnded, MountSlot, RunUser, UsableImage, known_bundles,
};
use executor::{ContainerEnd, Directory, GuestLane, HostWorkerLane, Lanes, sweep};
use host_launch::Owner;
use jail::Mount;
use operations::{Evidence, Fault, Reason, ToolFailure};
use policy::{Policy, Profile};
use refusal::chain;
use rustix::time::{ClockId, clock_gettime};
use store::Store;
use timestamp::Timestamp;
use tokio::task::block_in_place;

use crate::boundary;
use crate::launch::{Launcher, Wanted, differs, pool, source, wanted};
use crate::way_out::{Outward, narrowed};
use crate::{placeholders, restored, variables};
use run_directories::linked::InPlace;
use run_directories::mounting::{Opened, Shown, are_restricted, arrived, bind};
use run_directories::resources::{Held, RunResources};
use run_directories::{linked, workspace};

/// Time in which each command of the previous daemon has to end.
const WITHIN: Duration = Duration::from_secs(2);

/// Mismatch that only programs of a run with a writable root bring about.
const NO_FILES: &str = "its /etc/passwd or /etc/group is not a file";

/// Beginning of the mismatch of a container in which no worker starts.
const NO_WORKER: &str = "no worker could be started in its container";

/// End of the mismatch of a container whose processes go on.
const NOT_ENDED: &str = "could not be ended";

/// A run that takes calls again.
pub(crate) struct Adopted {
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) resources: Held,
    pub(crate) ended: LeftoversEnded,
    pub(crate) companions: Companions,
}

/// Reason that a run is not reattached. The run's principal reads it, so it names no path of the host.
pub(crate) type Mismatch = String;

/// Returns the failure of a run that the next daemon cannot take over.
pub(crate) fn lost(why: Mismatch) -> ToolFailure {
    ToolFailure::new(Reason::RunLost, why).shown_by(Evidence::new("daemon.event", "restart"))
}

/// Returns true if the host has been up since this moment. If its clock was set meanwhile, the answer may be wrong.
fn is_of_this_boot(moment: Timestamp) -> bool {
    let up = clock_gettime(ClockId::Boottime).tv_sec;
    u64::try_from(up).is_ok_and(|up| moment.elapsed() < Duration::from_secs(up))
}

/// Checks a run that was made under an earlier policy against the policy of today.
///
/// `secrets` has the values of its secret variables.
pub(crate) fn terms(
    policy: &Policy,
    store: &Store,
    record: &Record,
    secrets: &BTreeMap<String, String>,
) -> Result<Wanted, Mismatch> {
    let spec = &record.spec;
    let profile = policy
        .profile(&spec.profile)
        .ok_or_else(|| format!("the policy no longer has the profile {}", spec.profile))?;
    if policy.role(&spec.role).is_none() {
        return Err(format!("the policy no longer has the role {}", spec.role));
    }
    if !permits(profile, &spec.image) {
        return Err(format!("profile {} no longer allows its image", spec.profile));
    }
    if let Some(above) = above(profile, spec) {
        return Err(format!("its {above} is above what profile {} now allows", spec.profile));
    }
    let running = record.companions.iter().filter(|one| !matches!(one.state, CompanionState::Exited(_)));
    let running = running.map(|one| (one.image.as_str(), one.memory_mib));
    if let Some(forbidden) = profile.companions.forbids(running) {
        return Err(format!("profile {} no longer allows {forbidden}", spec.profile));
    }
    if !spec.secret_env.iter().eq(secrets.keys()) {
        return Err("the values of its secret variables are no longer stored".to_owned());
    }
    let environment = variables::environment(spec, secrets);
    if variables::refused(profile, &environment).is_some() {
        return Err(format!("profile {} no longer allows its environment variables", spec.profile));
    }
    // As at its launch: what it may reach is decided at each connection.
    let fingerprint = record.started.as_ref().and_then(|started| started.fingerprint.as_ref());
    let outward = fingerprint.map_or(Outward { resolver: None, has_bundle: false }, Outward::of);
    let placeholders = placeholders::of_run(store, record.id, &narrowed(profile, &record.narrowed));
    variables::for_connections(&environment, outward.has_bundle, &placeholders)
        .and_then(|environment| wanted(profile, &spec.image, &spec.limits, environment, outward))
        .map_err(|refusal| refusal.message)
}

/// Returns true if the profile still allows the image.
///
/// The record has the image that was finally chosen. An empty name is the daemon's default image.
fn permits(profile: &Profile, image: &str) -> bool {
    match image {
        "" => profile.image.is_none(),
        image => profile.permits_image(Some(image)),
    }
}

fn above(profile: &Profile, spec: &Spec) -> Option<&'static str> {
    let (has, most) = (&spec.limits, &profile.limits);
    [
        ("memory", has.memory_bytes > most.memory_mib << 20),
        ("CPU time", u64::from(has.cpu_millis) > most.cpu_millis),
        ("limit of processes", u64::from(has.pids) > most.pids),
        ("limit of file sizes", has.file_size_bytes > most.file_size_mib << 20),
        ("limit of open files", u64::from(has.open_files) > most.open_files),
        ("quota of bytes on the disk", has.disk_bytes > most.disk_mib << 20),
        ("quota of files on the disk", has.disk_files > most.disk_files),
        ("limit of kept output", has.output_bytes > most.output_mib << 20),
    ]
    .into_iter()
    .find_map(|(name, is_above)| is_above.then_some(name))
}

impl Launcher {
    /// Reattaches the run, with the processes that `spared` names. If it fails, the caller still has to remove the container and the
    /// mounts.
    pub(crate) async fn adopt(
        &self,
        record: &Record,
        wanted: &Wanted,
        spared: BTreeSet<String>,
    ) -> Result<Adopted, Mismatch> {
        let started = record.started.as_ref().ok_or("its launch was not complete")?;
        let fingerprint =
            started.fingerprint.as_ref().ok_or("its daemon stored too little to recognise it")?;
        let wanted = &wanted.under(self.projects.quota_of(record.id));
        let run = record.id.to_string();
        let container = ContainerId::parse(&started.container_id).map_err(|error| chain(&error))?;
        let found = block_in_place(|| self.found(record, started, fingerprint))?;
        let directories = found.shown(wanted.workspace_access);
        // A mismatch leaves the mounts to the caller, or to the daemon that goes on with the run.
        let mut resources = self.held(record, &container, &directories, fingerprint)?;

        let inspection = self.inspected(&run, &container).await?;
        let first = alive(&inspection, fingerprint)?;
        let hardening = &wanted.hardening;
        let user = user(started, fingerprint, hardening)?;
        let root = resources.root.as_ref();
        let mounts = match fingerprint.warm {
            Some(_) => pool::mounts(&self.slots_of(record, fingerprint), wanted.workspace_access),
            None => bind(&resources.slots, &directories),
        };
        let mut mounts = mounts.map_err(|refusal| refusal.message)?;
        if let Some(root) = root {
            mounts.extend(block_in_place(|| root.mounts()).map_err(|refusal| refusal.message)?);
        }
        let image = self.image_again(started, fingerprint).await?;
        let made_as = fingerprint.made_as(record.id).to_string();
        let spec = self
            .describe(&made_as, hardening, image, user, mounts, fingerprint.guest.clone())
            .map_err(|refusal| refusal.message)?;
        if let Some(fields) = differs(&run, &spec, &inspection) {
            return Err(format!(
                "its container differs from how it was launched, or from its profile now ({fields})"
            ));
        }
        let boundary = hardening.boundary;
        let ended = match boundary {
            Boundary::HostKernel => end_leftovers(&container, first, spared).await?,
            Boundary::OwnKernel => self.sweep(&container, user).await?,
        };

        let pid = inspection.host_pid.unwrap_or_default();
        block_in_place(|| boundary::has_no_network(pid))?;
        let pid = match boundary {
            Boundary::HostKernel => pid,
            Boundary::OwnKernel => block_in_place(|| boundary::file_server(&inspection, &container))
                .map_err(|refusal| refusal.message)?,
        };
        // Files of a checkpoint may have come in place of a bundle of the image. The run's own is at its path nevertheless.
        let own = self.own_files(&made_as, user, hardening, &[]).map_err(|refusal| refusal.message)?;
        let arrived = |pid| {
            let arrived = block_in_place(|| {
                arrived(pid, &directories, &own, root)?;
                if fingerprint.warm.is_some() { are_restricted(pid, &directories) } else { Ok(()) }
            });
            arrived.map_err(|refusal| refusal.message)
        };
        arrived(pid)?;
        // The daemon takes no calls until all runs of the previous daemon have been checked.
        if !hardening.has_own_etc() && root.is_some_and(|root| !block_in_place(|| root.users_are_files())) {
            return Err(NO_FILES.to_owned());
        }
        let environment = wanted.environment.clone();
        let guest = GuestLane::connect(self.engine.clone(), container, user, Some(environment), boundary);
        let guest = guest.await.map_err(|refusal| format!("{NO_WORKER}: {}", refusal.message))?;
        if let Some(pid) = guest.host_pid() {
            arrived(pid)?;
        }
        for pid in [inspection.host_pid, guest.host_pid()] {
            self.has_users(pid, hardening).map_err(|refusal| refusal.message)?;
        }
        let mut beside = Vec::new();
        for companion in &record.companions {
            let again = self.companion_again(hardening, &fingerprint.guest, companion).await;
            let (live, held) = again.map_err(|why| format!("its companion {}: {why}", companion.name))?;
            resources.beside.push(held.into_inner());
            beside.push(live);
        }
        let host_worker = host_worker_again(&run, &found).await?;
        let lanes = Arc::new(Lanes::new(guest, host_worker));
        Ok(Adopted { lanes, resources, ended, companions: Companions::new(beside) })
    }

    /// Returns the failure of a run that cannot be reattached. Its programs may have used up its memory while no daemon was there.
    pub(crate) async fn lost(&self, record: &Record, wanted: &Wanted, why: Mismatch) -> Box<ToolFailure> {
        if why == NO_FILES {
            return Box::new(lost(why).by(Fault::Program));
        }
        let started = record.started.as_ref();
        let container = started.and_then(|started| ContainerId::parse(&started.container_id).ok());
        let Some(container) = container else { return Box::new(lost(why)) };
        let Ok(found) = self.engine.inspect(&container).await else { return Box::new(lost(why)) };
        if !matches!(found.state, ContainerState::Exited(_)) {
            // Processes that stayed may have used up the processes or the memory that a worker needs. The engine answers.
            let is_own = why.starts_with(NO_WORKER) || why.ends_with(NOT_ENDED);
            return Box::new(if is_own { lost(why).by(Fault::Program) } else { lost(why) });
        }
        let boundary = wanted.hardening.boundary;
        let end = ContainerEnd::find(&self.engine, &container, boundary, None, 0).await;
        let failure = end.failure(why).shown_by(Evidence::new("daemon.event", "restart"));
        // A host that restarts ends containers with several exit codes. While it was up, a program may have crashed gVisor, as it may
        // while a daemon watches.
        let may_crash = boundary == Boundary::OwnKernel && is_of_this_boot(record.created_at);
        let is_own = failure.reason == Reason::MemoryLimit || may_crash;
        Box::new(if is_own { failure } else { failure.by(Fault::Infrastructure) })
    }

    /// Returns the directory with the slots of the run, under the name with which its container was made.
    fn slots_of(&self, record: &Record, fingerprint: &LaunchFingerprint) -> PathBuf {
        self.directories.slots(&fingerprint.made_as(record.id).to_string())
    }

    /// Returns what the launch made on the host, if it is still there and mounted.
    fn held(
        &self,
        record: &Record,
        container: &ContainerId,
        directories: &[Shown<'_>],
        fingerprint: &LaunchFingerprint,
    ) -> Result<Held, Mismatch> {
        let parent = self.slots_of(record, fingerprint);
        let run = record.id.to_string();
        let mut held = Held::new(RunResources {
            container: Some(container.clone()),
            slot_directory: Some(parent.clone()),
            ..RunResources::default()
        });
        block_in_place(|| {
            find_slots(&parent, directories, fingerprint.warm.is_some(), &mut held)?;
            held.root = fingerprint.root.map(|was| self.reattach_root(&parent, &run, was)).transpose()?;
            Ok(held)
        })
    }

    pub(crate) async fn inspected(&self, run: &str, container: &ContainerId) -> Result<Inspection, Mismatch> {
        self.engine.inspect(container).await.map_err(|error| match error {
            containers::EngineError::NotFound { .. } => "its container is gone".to_owned(),
            error => {
                tracing::error!(run, error = %chain(&error), "a container cannot be inspected");
                "the engine does not report the state of its container".to_owned()
            }
        })
    }

    /// Ends all processes that calls of the previous daemon left in a container with its own kernel. Their number is not visible from
    /// outside.
    async fn sweep(&self, container: &ContainerId, user: RunUser) -> Result<LeftoversEnded, Mismatch> {
        if sweep(self.engine.as_ref(), container, user).await {
            return Ok(LeftoversEnded::default());
        }
        Err(format!("its background processes {NOT_ENDED}"))
    }

    /// Opens the run's directories and checks that each is the one that was mounted.
    fn found(
        &self,
        record: &Record,
        started: &Started,
        fingerprint: &LaunchFingerprint,
    ) -> Result<Opened, Mismatch> {
        let run = record.id.to_string();
        let own = |path: &Path, was: Place, what: &str| {
            let directory = workspace::open_own(path).map_err(|error| {
                tracing::error!(run, path = %path.display(), %error, "a directory of a run cannot be opened");
                format!("its {what} cannot be opened")
            })?;
            same(directory, was, what)
        };
        if let Some(why) = self.restored(record, fingerprint) {
            return Err(why);
        }
        let workspace = self.workspace_again(record, started, fingerprint)?;
        let state = own(&self.directories.run_state(&run), fingerprint.state, "state directory")?;
        let private = own(&self.directories.private(&run), fingerprint.private, "private directory")?;
        let was = fingerprint.log.ok_or("it was launched by a release that kept its log at another path")?;
        let log = own(&self.directories.run_log(&run), was, "log directory")?;
        let log = Directory { is_mapped: true, ..log };
        let pkg = match (&record.spec.pkg_path, fingerprint.pkg) {
            (Some(path), Some(was)) => {
                let handle = self.roots.reopen(path).ok_or("the directory at /pkg no longer exists")?;
                let owner = fingerprint.owner;
                let directory = Directory { handle, path: path.clone(), owner, is_mapped: false };
                Some(same(directory, was, "directory at /pkg")?)
            }
            _ => None,
        };
        let linked = fingerprint.linked.as_ref().and_then(|was| {
            let found = self.repository_again(&run, started.layer, was, fingerprint.owner);
            if found.is_none() {
                tracing::warn!(run, "a work tree's repository was replaced: no git operations");
            }
            found
        });
        Ok(Opened { workspace, state, private, log, pkg, linked })
    }

    /// Explains that the run's directories came back from a backup, if they did.
    fn restored(&self, record: &Record, fingerprint: &LaunchFingerprint) -> Option<Mismatch> {
        let run = record.id.to_string();
        let mut own = vec![
            (self.directories.run_state(&run), fingerprint.state),
            (self.directories.private(&run), fingerprint.private),
        ];
        own.extend(fingerprint.log.map(|was| (self.directories.run_log(&run), was)));
        restored::explain(record.id, &record.spec.workspace, &own)
    }

    fn repository_again(
        &self,
        run: &str,
        layer: Option<Layer>,
        was: &Linked,
        owner: Owner,
    ) -> Option<InPlace> {
        let Some(layer) = layer else { return linked::again(&self.roots, was, owner) };
        let found = linked::again(&self.roots, was, layer.owner)?;
        let again = source::repository_again(run, found, owner, &self.directories, self.host.user_map);
        again
            .inspect_err(|refusal| tracing::warn!(run, why = refusal.message, "the layer of a repository"))
            .ok()
    }

    fn workspace_again(
        &self,
        record: &Record,
        started: &Started,
        fingerprint: &LaunchFingerprint,
    ) -> Result<Directory, Mismatch> {
        let path = started.workspace_path.clone();
        let handle = if let Some(layer) = started.layer {
            source::beneath_again(&path, layer, &self.directories, &self.roots)?;
            // The overlay that is mounted. A second overlay on the same layer must never exist.
            let made_as = fingerprint.made_as(record.id).to_string();
            let slot = self.directories.slots(&made_as).join(&Mount::Project.container_path()[1..]);
            workspace::open_own(&slot).map_err(|_| "its overlay is no longer mounted")?.handle
        } else if path.starts_with(self.directories.workspaces()) {
            workspace::open_own(&path).map_err(|_| "its workspace no longer exists")?.handle
        } else {
            self.roots.reopen(&path).ok_or("its workspace no longer exists")?
        };
        let directory =
            Directory { handle, path, owner: fingerprint.owner, is_mapped: fingerprint.is_mapped };
        same(directory, fingerprint.workspace, "workspace")
    }

    /// Returns the image that runs, by its digest, with the bundles that were found in it at the launch.
    async fn image_again(
        &self,
        started: &Started,
        fingerprint: &LaunchFingerprint,
    ) -> Result<UsableImage, Mismatch> {
        let reference = ImageReference::parse(&started.image_id).map_err(|error| chain(&error))?;
        let image = self.engine.image(&reference).await.map_err(|error| chain(&error))?;
        let image = image.ok_or("the engine no longer has its image")?;
        let bundles = known_bundles(fingerprint.bundles.iter().flatten().map(String::as_str));
        Ok(image.usable().map_err(|error| chain(&error))?.with_bundles(bundles))
    }
}

/// Starts the host worker, and recovers operations that died with the previous daemon before anybody reads files that are half
/// changed. If that fails, the next host worker recovers them.
async fn host_worker_again(run: &str, found: &Opened) -> Result<HostWorkerLane, Mismatch> {
    let host_worker = HostWorkerLane::new(
        &found.workspace,
        &found.state,
        found.pkg.as_ref(),
        &found.private,
        found.linked.as_ref().map(|found| &found.repository),
    )
    .map_err(|error| chain(&error))?;
    match host_worker.recover().await {
        Ok(words) if words.is_empty() => {}
        Ok(words) => tracing::warn!(run, words, "unfinished operations were repaired"),
        Err(why) => {
            tracing::error!(run, why, "operations were not finished; the next host worker repairs them");
        }
    }
    Ok(host_worker)
}

/// Finds the slots that the previous daemon made, and checks that each has its directory mounted.
fn find_slots(
    parent: &Path,
    directories: &[Shown<'_>],
    is_warm: bool,
    held: &mut RunResources,
) -> Result<(), Mismatch> {
    for shown in directories {
        let alias = shown.name;
        let slot = if is_warm {
            pool::reattach_slot(parent, shown)
        } else {
            MountSlot::reattach(&shown.slot(parent))
        };
        let slot = slot.map_err(|error| chain(&error))?;
        let slot = slot.ok_or_else(|| format!("the directory of {alias} is no longer mounted"))?;
        let path = slot.path().to_owned();
        // It stays mounted if anything else is wrong.
        held.slots.push(slot);
        let there = workspace::open_own(&path).map_err(|error| error.to_string())?;
        let place = |handle: &std::os::fd::OwnedFd| Place::of(handle).map_err(|error| chain(&error));
        if !place(&there.handle)?.is(place(&shown.directory.handle)?) {
            return Err(format!("something else is mounted for {alias}"));
        }
        if is_warm
            && pool::goes_with_another(shown)
            && let Some(slot) = held.slots.pop()
        {
            slot.leave();
        }
    }
    Ok(())
}

fn same(directory: Directory, was: Place, what: &str) -> Result<Directory, Mismatch> {
    let is = Place::of(directory.handle.as_fd()).map_err(|error| chain(&error))?;
    match is {
        is if is == was => Ok(directory),
        is if is.is(was) => Err(format!("its {what} now belongs to another user")),
        _ => Err(format!("its {what} was replaced by another directory")),
    }
}

/// Returns the container's first process, if it is the one that was started at the launch.
fn alive(inspection: &Inspection, fingerprint: &LaunchFingerprint) -> Result<HostProcess, Mismatch> {
    match inspection.state {
        ContainerState::Running => {}
        ContainerState::Exited(code) => return Err(format!("its container has ended (exit code {code})")),
        ContainerState::Paused => return Err("its container was paused outside of Cofferdam".to_owned()),
        ContainerState::Created | ContainerState::Other => {
            return Err("its container does not run".to_owned());
        }
    }
    if inspection.started_at != fingerprint.container_started {
        return Err("its container was restarted outside of Cofferdam".to_owned());
    }
    let pid = inspection.host_pid.ok_or("the engine does not name its container's process")?;
    HostProcess::of_engine(pid).map_err(|_| "its container's process is gone".to_owned())
}

fn user(
    started: &Started,
    fingerprint: &LaunchFingerprint,
    hardening: &Hardening,
) -> Result<RunUser, Mismatch> {
    match started.ownership {
        Ownership::Idmapped => Ok(hardening.run_as.user()),
        Ownership::OwnerUid => {
            RunUser::new(fingerprint.owner.uid, fingerprint.owner.gid).map_err(|error| chain(&error))
        }
    }
}

/// Ends the guest and all processes that calls of the previous daemon left in the container, except those that `spared` names.
async fn end_leftovers(
    container: &ContainerId,
    first: HostProcess,
    spared: BTreeSet<String>,
) -> Result<LeftoversEnded, Mismatch> {
    let container = container.clone();
    let ended = tokio::task::spawn_blocking(move || {
        let cgroup = ContainerCgroup::of_pid(first.pid(), &container)?;
        cgroup.end_leftovers(&first, &spared, WITHIN)
    });
    let ended = ended.await.map_err(|error| chain(&error))?.map_err(|error| {
        tracing::error!(error = %chain(&error), "processes from before the restart cannot be ended");
        "its background processes can be neither seen nor ended".to_owned()
    })?;
    match ended.left {
        0 => Ok(ended),
        left => Err(format!("{left} processes that were left running in it {NOT_ENDED}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_of_this_boot_is_told_from_one_before_it() {
        assert!(is_of_this_boot(Timestamp::now()));
        let long_ago: Timestamp = "2001-01-01T00:00:00.000000000Z".parse().unwrap();
        assert!(!is_of_this_boot(long_ago));
    }
}
