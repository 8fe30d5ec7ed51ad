//! A warm container, from its creation to the run that gets it.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::record::{ColdBecause, Ownership, Record};
use containers::{
    Boundary, ContainerId, ContainerSpec, ContainerState, HostUser, IdMap, Inspection, MountError, MountSlot,
    MountSpec, OwnerMap, Propagation, RunAs, RunUser, UsableImage,
};
use executor::{GuestLane, engine_refusal};
use identity::{Principal, RunId};
use jail::{Mount, MountMode};
use operations::{Environment, Reason};
use refusal::{Refusal, chain};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;
use warm_pool::NoneWaits;

use super::{Make, named};
use crate::boundary::has_no_network;
use crate::launch::root::NewRoot;
use crate::launch::{Contained, Launcher, Wanted, confirmed, differs};
use crate::run::Starting;
use run_directories::mounting::{Shown, are_restricted, arrived};
use run_directories::resources::RunResources;

/// A container that waits. Its owner uses it or removes it.
pub(super) struct Warm {
    id: RunId,
    container: ContainerId,
    spec: ContainerSpec,
    started_at: String,
    host_pid: Option<u32>,
    guest: GuestLane,
    resources: RunResources,
}

impl Warm {
    pub(super) fn is_connected(&self) -> bool {
        self.guest.is_connected()
    }

    /// Removes the container.
    pub(super) async fn discard(mut self, launcher: &Launcher) {
        self.guest.shutdown().await;
        self.resources.take_away(&launcher.engine).await;
    }

    /// Returns true if this is still the process that was started and verified before the container waited.
    fn is_same(&self, inspection: &Inspection) -> bool {
        inspection.state == ContainerState::Running
            && inspection.started_at == self.started_at
            && inspection.host_pid == self.host_pid
    }
}

/// Returns the mounts of a warm container: its shared slots below `slots`.
pub(crate) fn mounts(slots: &Path, workspace: MountMode) -> Result<Vec<MountSpec>, Refusal> {
    let each = [(Mount::Project, workspace), (Mount::State, MountMode::ReadWrite)];
    let mounts = each.into_iter().map(|(mount, access)| {
        let read_only = access == MountMode::ReadOnly;
        MountSpec::new(&slot(slots, mount), mount.container_path(), read_only, Propagation::Slave)
    });
    mounts.collect::<Result<_, _>>().map_err(|error| Refusal::internal("describing a mount", &error))
}

fn slot(slots: &Path, mount: Mount) -> PathBuf {
    slots.join(&mount.container_path()[1..])
}

/// Finds the slot of a claimed container in which a previous daemon mounted a directory.
pub(crate) fn reattach_slot(slots: &Path, shown: &Shown<'_>) -> Result<Option<MountSlot>, MountError> {
    let slot = slots.join(&shown.target[1..]);
    if goes_with_another(shown) { MountSlot::reattach(&slot) } else { MountSlot::reattach_covered(&slot) }
}

/// Returns true if the directory is mounted within the mount of another slot, and is unmounted with it.
pub(crate) fn goes_with_another(shown: &Shown<'_>) -> bool {
    shown.target.matches('/').count() > 1
}

impl Launcher {
    /// Makes a warm container. If it fails, it removes everything that it made.
    pub(super) async fn warm_up(&self, make: &Make) -> Result<Warm, Refusal> {
        let id = RunId::new();
        let mut resources = RunResources::default();
        match self.warm_steps(id, make, &mut resources).await {
            Ok((spec, inspection, guest)) => Ok(Warm {
                id,
                container: inspection.id,
                spec,
                started_at: inspection.started_at,
                host_pid: inspection.host_pid,
                guest,
                resources,
            }),
            Err(refusal) => {
                resources.made_too(&self.engine).await;
                Err(refusal)
            }
        }
    }

    async fn warm_steps(
        &self,
        id: RunId,
        make: &Make,
        resources: &mut RunResources,
    ) -> Result<(ContainerSpec, Inspection, GuestLane), Refusal> {
        let Make { wanted, image, root } = make;
        let made_as = id.to_string();
        let slots = self.directories.slots(&made_as);
        block_in_place(|| {
            resources.make_slots(&slots)?;
            for mount in [Mount::Project, Mount::State] {
                let shared = MountSlot::shared(&slot(&slots, mount))
                    .map_err(|error| Refusal::internal("mounting a shared slot", &chain(&error)))?;
                resources.slots.push(shared);
            }
            Ok::<_, Refusal>(())
        })?;
        self.make_bundle(&made_as, &wanted.hardening)?;
        let root = match root {
            Some(root) => self.waiting_root(id, root, make, resources).await?,
            None => Vec::new(),
        };
        let spec = self.warm_spec(&made_as, wanted, image, root)?;
        let (container, inspection) = self.contain(&spec, &made_as, resources).await?;
        let boundary = wanted.hardening.boundary;
        let guest = GuestLane::connect(self.engine.clone(), container, RunUser::DEFAULT, None, boundary);
        let guest = guest.await?;
        self.has_users(guest.host_pid(), &wanted.hardening)?;
        Ok((spec, inspection, guest))
    }

    /// Mounts an empty layer on the image, for a run that is not known yet, and returns its mounts.
    async fn waiting_root(
        &self,
        id: RunId,
        root: &NewRoot,
        make: &Make,
        resources: &mut RunResources,
    ) -> Result<Vec<MountSpec>, Refusal> {
        let Make { wanted: Wanted { hardening, .. }, image, .. } = make;
        let (made_as, user) = (id.to_string(), RunUser::DEFAULT);
        let guest = self.guest.of(hardening.boundary).to_owned();
        let bare = self.describe(&made_as, hardening, image.clone(), user, Vec::new(), guest)?;
        let layers = self.layers_of(&bare, image, &made_as, resources).await?;
        let on_host = user.on_host(self.host.user_map);
        block_in_place(|| self.root_layer(id, root, hardening, &layers, on_host, resources))
    }

    /// Describes the warm container that was made as `made_as`, with the mounts of its root.
    fn warm_spec(
        &self,
        made_as: &str,
        wanted: &Wanted,
        image: &UsableImage,
        root: Vec<MountSpec>,
    ) -> Result<ContainerSpec, Refusal> {
        let mut mounts = mounts(&self.directories.slots(made_as), wanted.workspace_access)?;
        mounts.extend(root);
        let guest = self.guest.of(wanted.hardening.boundary).to_owned();
        self.describe(made_as, &wanted.hardening, image.clone(), RunUser::DEFAULT, mounts, guest)
    }

    /// Returns the key of a kind. Containers with equal keys are interchangeable.
    ///
    /// The mounts of a writable root follow from the image and the directories that are added to it.
    pub(super) fn key(&self, make: &Make) -> Result<String, Refusal> {
        let digest = self.warm_spec("", &make.wanted, &make.image, Vec::new())?.digest();
        Ok(match &make.root {
            None => digest,
            Some(NewRoot { owner, paths }) => format!("{digest} root {}:{} {paths:?}", owner.uid, owner.gid),
        })
    }

    fn make_for(record: &Record, wanted: &Wanted, principal: &Principal, image: &UsableImage) -> Make {
        // The variables and the companions are the run's alone.
        let wanted_of_all = Wanted {
            hardening: wanted.hardening.clone(),
            image: wanted.image.clone(),
            workspace_access: wanted.workspace_access,
            environment: Environment::default(),
            companions: Vec::new(),
            starting: Starting::default(),
            open_beside: None,
            stopping: CancellationToken::new(),
        };
        let root = Self::new_root(record, wanted, principal);
        Make { wanted: wanted_of_all, image: image.clone(), root }
    }

    /// Keeps containers like the run's from now on, as long as they are asked for, if its profile has an entry.
    pub(crate) fn follow(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        image: &UsableImage,
    ) {
        let make = Self::make_for(record, wanted, principal, image);
        let Ok(key) = self.key(&make) else { return };
        let profile = &record.spec.profile;
        let image = wanted.image.as_ref().map(|image| image.as_str().to_owned());
        let name = named(profile, wanted.image.as_ref());
        self.pool.table.lock().add(&key, (profile.clone(), image), Instant::now(), || (name, make));
        self.pool.changed.notify_one();
    }

    /// Mounts the run's directories in a warm container and verifies it like a new one. Gives it the run's variables.
    ///
    /// Fails with a reason if no equal container waits, or if the verification failed. The container is removed then.
    pub(crate) async fn claim(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        image: &UsableImage,
        shown: &[Shown<'_>],
        resources: &mut RunResources,
    ) -> Result<Contained, ColdBecause> {
        if !self.pool.serves_any() {
            return Err(ColdBecause::NoPool);
        }
        if self.pool.is_unsupported() {
            return Err(ColdBecause::UnsupportedHost);
        }
        let is_served = self.pool.serves(&record.spec.profile, wanted.image.as_ref());
        let or_no_pool = |because| if is_served { because } else { ColdBecause::NoPool };
        let never = never_warm(wanted).or(record.spec.pkg_path.is_some().then_some(ColdBecause::PkgPath));
        if let Some(never) = never {
            return Err(or_no_pool(never));
        }
        let make = Self::make_for(record, wanted, principal, image);
        let key = self.key(&make).map_err(|_| ColdBecause::NotUsable)?;
        let taken = self.tenancy().claim(&record.spec.principal, || self.pool.take(&key));
        let mut warm = taken.ok_or(ColdBecause::TenantShare)?.map_err(|none| match none {
            NoneWaits::Taken => ColdBecause::NoneWaits,
            NoneWaits::Unknown => or_no_pool(ColdBecause::FirstOfItsKind),
        })?;
        match self.fill(record.id, &mut warm, wanted, image, shown).await {
            Ok(hardening) => {
                // Slots of the run itself, in which an overlay was assembled.
                resources.remove_slots();
                let Warm { id, container, started_at, guest, resources: of_warm, .. } = warm;
                resources.container = of_warm.container;
                resources.slots = of_warm.slots;
                resources.root = of_warm.root;
                resources.slot_directory = of_warm.slot_directory;
                tracing::debug!(run = %record.id, made_as = %id, "a warm container was claimed");
                Ok(Contained {
                    container,
                    started_at,
                    hardening,
                    ownership: Ownership::Idmapped,
                    guest,
                    warm: Some(id),
                })
            }
            Err(refusal) => {
                tracing::warn!(run = %record.id, made_as = %warm.id, why = refusal.message, "a warm container could not be used; the run gets a new container");
                // Remove it before another container has the workspace.
                warm.discard(self).await;
                // A directory of one run that cannot be mounted is no reason for the pool to wait.
                if refusal.reason == Reason::EngineUnavailable {
                    self.pool.has_failed.store(true, Ordering::Release);
                }
                Err(ColdBecause::NotUsable)
            }
        }
    }

    async fn fill(
        &self,
        run: RunId,
        warm: &mut Warm,
        wanted: &Wanted,
        image: &UsableImage,
        shown: &[Shown<'_>],
    ) -> Result<Vec<(String, String)>, Refusal> {
        // The engine answers while the directories are mounted.
        let (engine, container) = (self.engine.clone(), warm.container.clone());
        let inspecting = tokio::spawn(async move { engine.inspect(&container).await });
        let seen = RunUser::DEFAULT.on_host(self.host.user_map);
        let mounted = block_in_place(|| cover(&mut warm.resources.slots, shown, seen));
        let inspection = inspecting.await.map_err(|error| Refusal::internal("asking the engine", &error))?;
        let inspection = inspection.map_err(engine_refusal)?;
        mounted.map_err(|error| Refusal::internal("mounting the workspace", &chain(&error)))?;
        let refused = |why: String| Refusal::new(Reason::EngineUnavailable, why);
        if !warm.is_same(&inspection) {
            return Err(refused("its container was started again, or has ended".to_owned()));
        }
        if let Some(fields) = differs(&warm.id.to_string(), &warm.spec, &inspection) {
            return Err(refused(format!("its container was changed after its creation ({fields})")));
        }
        let pid = warm.guest.host_pid().ok_or_else(|| refused("its guest was not found".to_owned()))?;
        let made_as = warm.id.to_string();
        let own = self.own_files(&made_as, RunUser::DEFAULT, &wanted.hardening, image.bundles())?;
        block_in_place(|| {
            arrived(pid, shown, &own, warm.resources.root.as_ref())?;
            are_restricted(pid, shown)?;
            has_no_network(pid).map_err(refused)
        })?;
        block_in_place(|| self.give_root(run, &mut warm.resources))?;
        // Values of secret variables go to no container before it was verified.
        warm.guest.provide(wanted.environment.clone()).await?;
        if !warm.is_connected() {
            return Err(refused("its guest was lost".to_owned()));
        }
        let mut hardening = confirmed(&warm.spec, &inspection);
        hardening.push(("mounted_when_claimed".to_owned(), listed(shown)));
        hardening.extend(self.host.user_map.map(|_| ("user_on_host".to_owned(), seen.to_string())));
        Ok(hardening)
    }
}

/// Returns the reason that such a container never waits for its run.
pub(super) fn never_warm(wanted: &Wanted) -> Option<ColdBecause> {
    match (wanted.hardening.boundary, wanted.hardening.run_as) {
        // It takes no mounts later.
        (Boundary::OwnKernel, _) => Some(ColdBecause::OwnKernel),
        // Its users and files in /etc are its image's and its own.
        (Boundary::HostKernel, RunAs::MappedRoot) => Some(ColdBecause::RootInUserNamespace),
        (Boundary::HostKernel, RunAs::Agent) => None,
    }
}

/// Mounts the directories on the slots.
fn cover(slots: &mut [MountSlot], shown: &[Shown<'_>], seen: HostUser) -> Result<(), MountError> {
    for (slot, shown) in slots.iter_mut().zip(shown.iter().filter(|shown| !goes_with_another(shown))) {
        let directory = shown.directory;
        let map = (!directory.is_mapped).then_some(IdMap {
            disk_uid: directory.owner.uid,
            disk_gid: directory.owner.gid,
            seen_uid: seen.uid,
            seen_gid: seen.gid,
        });
        let map = map.map(OwnerMap::new).transpose()?;
        slot.cover(directory.handle.as_fd(), map.as_ref(), shown.access)?;
    }
    // `/state/logs`, which is within the directory that is now mounted at `/state`.
    for inner in shown.iter().filter(|shown| goes_with_another(shown)) {
        let Some((outer, name)) = inner.target[1..].rsplit_once('/') else { continue };
        if let Some(slot) = slots.iter().find(|slot| slot.path().ends_with(outer)) {
            slot.cover_within(name, inner.directory.handle.as_fd())?;
        }
    }
    Ok(())
}

/// Returns a list of the mounts that were verified, for people.
fn listed(shown: &[Shown<'_>]) -> String {
    let one = |shown: &Shown<'_>| format!("{} {}", shown.target, shown.access);
    shown.iter().map(one).collect::<Vec<_>>().join(", ")
}
