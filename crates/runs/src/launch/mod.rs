//! Launches a validated run, up to a container whose guest answers. A failed step undoes all steps before it.
//!
//! ```text
//!  workspace ─► state directory ─► mounts ─► create ─► start ─► read back & compare ─► guest ─► hello ─► READY
//!                             └──► claimed from the pool ─► mounts ─► read back & compare ──────────────┘
//! ```

pub(crate) mod beside;
mod container;
mod fork;
mod images;
pub(crate) mod pool;
mod remote;
pub(crate) mod root;
pub(crate) mod source;
mod turns;
mod users;

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;

use crate::record::{
    ColdBecause, LaunchFingerprint, Layer, Limits, Ownership, Place, Record, Started, Workspace,
};
use ::tenants::Tenancy;
use admission::FairTurns;
use companions::{Companion, Requested};
use containers::{ContainerId, Engine, EngineFacts, Hardening, ImageReference, Quota, RunAs, UsableImage};
use disk_quotas::Projects;
use executor::{Directory, GuestLane, HostWorkerLane, Lanes};
use futures_util::future::BoxFuture;
use host_launch::Owner;
use identity::{Principal, RunId};
use jail::MountMode;
use operations::Environment;
use policy::Profile;
use refusal::Refusal;
use run_files::GuestBinary;
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

use crate::default_image::DefaultImageSource;
use crate::run::Starting;
use crate::way_out::{Outward, WayOut};
use crate::{boundary, way_out};
use run_directories::directories::Directories;
use run_directories::mounting::{Opened, Shown};
use run_directories::resources::RunResources;
use run_directories::workspace::{self, Purpose, Roots};

use beside::Beside;
pub(crate) use container::{confirmed, differs};
pub(crate) use fork::fill_part;
pub use images::ColdStarts;
use pool::Pool;
pub use remote::RemoteClones;
use source::Source;
use turns::{in_turn, turn_of};

/// Starts the egress of a companion, by the id under which its container was made, with true if some of its connections are opened.
pub(crate) type OpenBeside =
    Arc<dyn Fn(Arc<Companion>, (RunId, bool)) -> BoxFuture<'static, Result<(), Refusal>> + Send + Sync>;

/// The container that a run needs, from the policy.
#[derive(Clone)]
pub(crate) struct Wanted {
    pub(crate) hardening: Hardening,
    /// The image. `None` is the default image.
    pub(crate) image: Option<ImageReference>,
    pub(crate) workspace_access: MountMode,
    /// Environment of the run's commands.
    pub(crate) environment: Environment,
    /// Companions of a run that is launched, in groups of which each starts when all before it are ready.
    pub(crate) companions: Vec<Vec<Requested>>,
    /// Those that the launch has started.
    pub(crate) starting: Starting,
    /// `None` if no companion is launched.
    pub(crate) open_beside: Option<OpenBeside>,
    /// Cancelled when the launch may wait for companions and servers no longer.
    pub(crate) stopping: CancellationToken,
}

impl Wanted {
    /// Returns a copy for a run whose quota is enforced in this way.
    pub(crate) fn under(&self, quota: Quota) -> Self {
        Self { hardening: Hardening { quota, ..self.hardening.clone() }, ..self.clone() }
    }
}

/// Launches runs. The daemon has one.
pub struct Launcher {
    pub engine: Arc<Engine>,
    pub host: EngineFacts,
    pub instance: String,
    /// The guest's binary on the host.
    pub guest: GuestBinary,
    pub default_image: DefaultImageSource,
    pub directories: Directories,
    pub roots: Roots,
    pub projects: Projects,
    pub pool: Pool,
    /// Limits how many launches make directories of runs, or unmount them, at the same time.
    ///
    /// Each of a hundred threads would wait for the same disk or the same lock of the kernel, and keep memory in use.
    pub making: FairTurns,
    pub starting: ColdStarts,
    pub way_out: WayOut,
    pub remote_clones: RemoteClones,
}

/// A container whose guest answers, and whose mounts were verified.
pub(crate) struct Contained {
    pub(crate) container: ContainerId,
    /// Start time of the container's first process, as the engine reports it.
    pub(crate) started_at: String,
    /// Settings that the engine confirmed.
    pub(crate) hardening: Vec<(String, String)>,
    pub(crate) ownership: Ownership,
    pub(crate) guest: GuestLane,
    /// Id under which the container was made, if it was made as a warm container.
    pub(crate) warm: Option<RunId>,
}

/// A run that takes calls.
pub(crate) struct Launched {
    pub(crate) started: Started,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) resources: RunResources,
    pub(crate) companions: Vec<Beside>,
}

impl Launcher {
    /// Launches the run of `record`. If it fails, it removes everything that it made.
    pub(crate) async fn launch(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
    ) -> Result<Launched, Refusal> {
        let mut resources = RunResources::default();
        let steps = Box::pin(self.steps(record, wanted, principal, &mut resources));
        match steps.await {
            Ok((started, lanes, companions)) => Ok(Launched { started, lanes, resources, companions }),
            Err(refusal) => {
                self.undo(record.id, resources).await;
                Err(refusal)
            }
        }
    }

    pub fn tenancy(&self) -> &Arc<Tenancy> {
        &self.way_out.outside.shared().tenancy
    }

    /// Returns the bytes of the connections of all runs since the daemon's start: out, and in.
    pub fn egress_bytes(&self) -> [u64; 2] {
        self.way_out.outside.shared().bytes.counts()
    }

    /// Returns the tenant of a run. Tenants share turns evenly.
    pub(crate) fn tenant_of(&self, record: &Record) -> String {
        self.tenancy().tenant_of(&record.spec.principal)
    }

    /// Removes everything that a launch made.
    pub(crate) async fn undo(&self, run: RunId, resources: RunResources) {
        resources.made_too(&self.engine).await;
        self.projects.settle(run);
    }

    async fn steps(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        resources: &mut RunResources,
    ) -> Result<(Started, Arc<Lanes>, Vec<Beside>), Refusal> {
        boundary::is_named(wanted.hardening.runtime.as_deref(), &self.host)?;
        users::can_be_had(&wanted.hardening, &self.host)?;
        let imaging = self.image(wanted.image.as_ref());
        let opening = self.open(record, wanted, principal, resources);
        let ((image, busybox), (opened, layer)) = if is_clone(record) {
            // It may take minutes, so it does not begin for an image that is refused.
            let image = imaging.await?;
            (image, opening.await?)
        } else {
            // The engine answers while the directories are made.
            let (image, opened) = tokio::join!(imaging, opening);
            (image?, opened?)
        };
        self.fill_directories(record, &opened, resources).await?;
        // By now the run's directories have their project, or have none.
        let wanted = &wanted.under(self.projects.quota_of(record.id));
        let shown = opened.shown(wanted.workspace_access);
        let container = self.contained(record, wanted, principal, &image, &shown, resources);
        let owner = workspace::owner_for(principal);
        let (made, beside) = Box::pin(self.with_companions(record, wanted, owner, container)).await;
        resources.beside = beside;
        let ((made, cold_because), companions, waited_for_companions) = made?;
        let user = wanted.hardening.run_as.user().on_host(self.host.user_map);
        self.fill_root(record, &image.id().to_string(), user, resources).await?;
        let Contained { container, started_at, hardening, ownership, guest, warm } = made;
        let place = |directory: &Directory| {
            Place::of(&directory.handle)
                .map_err(|error| Refusal::internal("looking at the run's directories", &error))
        };
        let Opened { workspace, state, private, log, pkg, linked } = &opened;
        let fingerprint = LaunchFingerprint {
            container_started: started_at,
            guest: self.guest.of(wanted.hardening.boundary).to_owned(),
            owner: workspace.owner,
            is_mapped: workspace.is_mapped,
            workspace: place(workspace)?,
            state: place(state)?,
            private: place(private)?,
            pkg: pkg.as_ref().map(place).transpose()?,
            log: Some(place(log)?),
            root: resources.root.as_ref().map(root::place).transpose()?,
            warm,
            resolver: wanted.hardening.resolver,
            bundles: wanted
                .hardening
                .has_bundle
                .then(|| image.bundles().iter().map(|path| (*path).to_owned()).collect()),
            linked: linked.as_ref().and_then(|found| found.kept.clone()),
        };
        let repository = linked.as_ref().map(|found| &found.repository);
        let host_worker = HostWorkerLane::new(workspace, state, pkg.as_ref(), private, repository)
            .map_err(|error| Refusal::internal("preparing the host lane", &error))?;
        let started = Started {
            image_id: image.id().to_string(),
            container_id: container.to_string(),
            hardening: hardening
                .into_iter()
                .chain(busybox.map(|digest| ("busybox".to_owned(), digest)))
                .collect(),
            ownership,
            workspace_path: workspace.path.clone(),
            layer,
            fingerprint: Some(fingerprint),
            cold_because,
            waited_for_companions,
        };
        Ok((started, Arc::new(Lanes::new(guest, host_worker)), companions))
    }

    /// Claims a container that waits, or makes a new one. Also returns the reason for a new one.
    async fn contained(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        image: &UsableImage,
        shown: &[Shown<'_>],
        resources: &mut RunResources,
    ) -> Result<(Contained, Option<ColdBecause>), Refusal> {
        let because = match self.claim(record, wanted, principal, image, shown, resources).await {
            Ok(contained) => return Ok((contained, None)),
            Err(because) => because,
        };
        let contained = self.cold(record, wanted, principal, image, shown, resources).await?;
        if because == ColdBecause::FirstOfItsKind {
            self.follow(record, wanted, principal, image);
        }
        Ok((contained, Some(because)))
    }

    /// Opens the run's directories, and makes those that belong to the daemon.
    async fn open(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        resources: &mut RunResources,
    ) -> Result<(Opened, Option<Layer>), Refusal> {
        // A clone may take minutes. It takes no turn, so that other launches do not wait for it.
        let _turn =
            if is_clone(record) { None } else { Some(turn_of(&self.making, &self.tenant_of(record)).await?) };
        let run = record.id.to_string();
        let pkg = match &record.spec.pkg_path {
            Some(path) => {
                Some(block_in_place(|| self.roots.open("pkg_path", path, Purpose::Show, principal))?)
            }
            None => None,
        };
        let continued = match record.spec.workspace {
            Workspace::Kept { workspace } => Some(workspace),
            _ => None,
        };
        block_in_place(|| self.projects.allot(record.id, continued, record.spec.limits.disk()));
        let seen = wanted.hardening.run_as.user().on_host(self.host.user_map);
        let Source { directory: workspace, layer, linked } =
            self.workspace(record, seen, principal, &wanted.stopping, resources).await?;
        let state_path = self.directories.run_state(&run);
        let state = block_in_place(|| self.make(record.id, &state_path, workspace.owner))
            .map_err(|error| Refusal::internal("making the run's state directory", &error))?;
        resources.made.push(state_path);
        let log_path = self.directories.run_log(&run);
        resources.made.push(log_path.clone());
        let log = block_in_place(|| {
            run_files::prepare_log(&log_path, state.handle.as_fd())?;
            workspace::open_own(&log_path)
        });
        let log = log.map_err(|error| Refusal::internal("making the run's execution log", &error))?;
        // The directory keeps the daemon as its owner in the mount.
        let log = Directory { is_mapped: true, ..log };
        let private_path = self.directories.private(&run);
        let private = block_in_place(|| workspace::make(&private_path, workspace.owner))
            .map_err(|error| Refusal::internal("making the run's private directory", &error))?;
        resources.made.push(private_path);
        block_in_place(|| self.make(record.id, &self.directories.uploads(&run), workspace.owner))
            .map_err(|error| Refusal::internal("making the directory of the run's uploads", &error))?;
        Ok((Opened { workspace, state, private, log, pkg, linked }, layer))
    }

    /// Makes a new container for the run.
    async fn cold(
        &self,
        record: &Record,
        wanted: &Wanted,
        principal: &Principal,
        image: &UsableImage,
        shown: &[Shown<'_>],
        resources: &mut RunResources,
    ) -> Result<Contained, Refusal> {
        let first = self.starting.first(image.id()).await?;
        let turn = turn_of(&self.starting.turns, &self.tenant_of(record)).await?;
        let launch = self.cold_steps(record, wanted, principal, image, shown, resources);
        let contained = in_turn(turn, launch).await?;
        first.started();
        Ok(contained)
    }

    /// Makes a directory of the daemon that counts against the run's quota.
    pub(crate) fn make(&self, run: RunId, path: &Path, owner: Owner) -> io::Result<Directory> {
        let made = workspace::make(path, owner)?;
        self.projects.assign(run, made.handle.as_fd());
        Ok(made)
    }
}

fn is_clone(record: &Record) -> bool {
    record.spec.workspace.is_clone()
}

/// Returns the profile's container, with the limits that the client lowered.
pub(crate) fn wanted(
    profile: &Profile,
    image: &str,
    limits: &Limits,
    environment: Environment,
    outward: Outward,
) -> Result<Wanted, Refusal> {
    let boundary = boundary::of(profile);
    let Outward { resolver, has_bundle } = outward;
    way_out::can_be_had(resolver, boundary)?;
    let image = match image {
        "" => None,
        image => Some(ImageReference::parse(image).map_err(|error| Refusal::invalid("image", error))?),
    };
    Ok(Wanted {
        hardening: Hardening {
            memory_bytes: limits.memory_bytes,
            cpu_millis: limits.cpu_millis,
            pids: limits.pids,
            open_files: u64::from(limits.open_files),
            file_size_bytes: limits.file_size_bytes,
            tmp_bytes: profile.limits.tmp_mib << 20,
            shm_bytes: profile.limits.shm_mib << 20,
            tmp: profile.tmp,
            root: profile.root,
            run_as: if profile.root_in_user_namespace { RunAs::MappedRoot } else { RunAs::Agent },
            quota: Quota::default(),
            runtime: profile.runtime.clone(),
            boundary,
            resolver,
            has_bundle,
        },
        image,
        environment,
        workspace_access: profile.workspace,
        companions: Vec::new(),
        starting: Starting::default(),
        open_beside: None,
        stopping: CancellationToken::new(),
    })
}
