//! Mounts the writable root of a run, and finds the one that a previous daemon mounted.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use crate::record::Place;
use containers::{
    ContainerName, ContainerSpec, Hardening, HostUser, MountError, MountSpec, OverlayError, RunUser,
    UsableImage,
};
use executor::engine_refusal;
use executor::root_layer::{RootLayer, empty_layer, mount_points, write_host_files};
use host_launch::Owner;
use identity::RunId;
use jail::RootMode;
use operations::Reason;
use refusal::{Refusal, chain};
use tokio::task::block_in_place;

use super::Launcher;
use run_directories::resources::RunResources;
use run_directories::workspace;

/// What a writable root is made with, besides the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewRoot {
    /// Owner of its files on disk.
    pub(crate) owner: Owner,
    /// Directories that the run's user gets, beside the home.
    pub(crate) paths: Vec<String>,
}

impl NewRoot {
    /// Returns `None` for a container without a writable root.
    pub(crate) fn of(hardening: &Hardening, owner: Owner, paths: &[String]) -> Option<Self> {
        (hardening.root == RootMode::WritableLayer).then(|| Self { owner, paths: paths.to_vec() })
    }
}

impl Launcher {
    /// Returns the layers of the image, topmost first.
    ///
    /// If the engine does not name them, this starts a container of the image, whose root the kernel shows. No program of the image runs in
    /// it.
    pub(crate) async fn layers_of(
        &self,
        spec: &ContainerSpec,
        image: &UsableImage,
        run: &str,
        resources: &mut RunResources,
    ) -> Result<Vec<PathBuf>, Refusal> {
        if !image.directories().is_empty() {
            return Ok(image.directories().to_vec());
        }
        let name = ContainerName::parse(&format!("cofferdam-{run}-image"))
            .map_err(|error| Refusal::internal("naming a container", &error))?;
        let container = self.engine.create(spec, &name).await.map_err(engine_refusal)?;
        resources.container = Some(container.clone());
        self.engine.start(&container).await.map_err(engine_refusal)?;
        let pid = self.engine.inspect(&container).await.map_err(engine_refusal)?.host_pid;
        let layers =
            pid.map_or_else(|| Ok(Vec::new()), |pid| block_in_place(|| containers::root_layers(pid)));
        self.engine.remove(&container).await.map_err(engine_refusal)?;
        resources.container = None;
        layers.map_err(|error| Refusal::internal("looking for the layers of an image", &error))
    }

    /// Mounts a new root for what is made as `id`, and returns its mounts. `user` is the container's user, as the host sees it.
    pub(crate) fn root_layer(
        &self,
        id: RunId,
        new: &NewRoot,
        hardening: &Hardening,
        image: &[PathBuf],
        user: HostUser,
        resources: &mut RunResources,
    ) -> Result<Vec<MountSpec>, Refusal> {
        let run = id.to_string();
        if !rustix::process::geteuid().is_root() {
            return Err(refused("it needs a daemon that runs as root"));
        }
        let path = self.directories.root_layer(&run);
        let made = self
            .make(id, &path, Owner { uid: 0, gid: 0 })
            .map_err(|error| Refusal::internal("making the layer of a root", &error))?;
        resources.made.push(path.clone());
        let owner = new.owner;
        empty_layer(&made.handle, owner)
            .map_err(|error| Refusal::internal("making the layer of a root", &error))?;
        let slots = self.directories.slots(&run);
        let layer = made.handle.as_fd();
        let on_disk = HostUser { uid: owner.uid, gid: owner.gid };
        let of_image = RunUser::ROOT.on_host(self.host.user_map);
        let slot = containers::mount_root(&slots, image, of_image, layer, on_disk, user)
            .map_err(|error| refusal(&error))?;
        let root = RootLayer::of(slot, path).map_err(|error| Refusal::internal("opening a root", &error))?;
        root.make_own(hardening.home(), user)?;
        let etc = root.make_own("/etc", user)?;
        let prepared = if hardening.has_own_etc() {
            mount_points(&etc).map_err(std::io::Error::from)
        } else {
            write_host_files(&etc, user, hardening.resolver)
        };
        prepared.map_err(|error| Refusal::internal("making the files of a root in /etc", &error))?;
        if hardening.has_bundle {
            root.make_policies(user)
                .map_err(|errno| Refusal::internal("making the policies of a root in /etc", &errno))?;
        }
        for wanted in &new.paths {
            root.make("writable_paths", wanted, user)?;
        }
        let mounts = root.mounts()?;
        resources.root = Some(root);
        Ok(mounts)
    }

    /// Makes the layer of a root that waited the run's: in its quota, and under its name.
    pub(crate) fn give_root(&self, run: RunId, resources: &mut RunResources) -> Result<(), Refusal> {
        let Some(root) = &mut resources.root else { return Ok(()) };
        let failed = |error: std::io::Error| Refusal::internal("giving a root to its run", &error);
        let path = self.directories.root_layer(&run.to_string());
        root.rename(path.clone()).map_err(|errno| failed(errno.into()))?;
        let layer = workspace::open_own(&path).map_err(failed)?;
        self.projects.take_in(run, layer.handle.as_fd()).map_err(failed)?;
        root.link_mounts().map_err(|errno| failed(errno.into()))
    }

    /// Finds the root that the previous daemon mounted, and checks that it is the same.
    pub(crate) fn reattach_root(&self, slots: &Path, run: &str, was: Place) -> Result<RootLayer, String> {
        let slot = containers::reattach_root(slots);
        let slot = slot.map_err(|error| chain(&error))?.ok_or("its root is no longer mounted")?;
        // The daemon that goes on with the run, or a later step, unmounts it.
        let root =
            RootLayer::reattach(slot, self.directories.root_layer(run)).map_err(|error| chain(&error))?;
        let why = match place(&root) {
            Ok(is) if is.is(was) => return Ok(root),
            Ok(_) => "something else is mounted as its root".to_owned(),
            Err(refusal) => refusal.message,
        };
        root.leave();
        Err(why)
    }
}

/// Returns the place of a root that is mounted.
pub(super) fn place(root: &RootLayer) -> Result<Place, Refusal> {
    Place::of(root.handle()).map_err(|error| Refusal::internal("looking at a root", &error))
}

fn refused(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(
        Reason::PreconditionFailed,
        format!(
            "the profile's `root: writable-layer` is not available on this host: {why}. Set `root: \
             read-only` in the profile"
        ),
    )
}

fn refusal(error: &OverlayError) -> Refusal {
    match error {
        OverlayError::Mount(MountError::Unsupported(_)) => {
            refused("the kernel or the file system of the engine or of state_dir has no idmapped mounts")
        }
        OverlayError::Mount(_) => Refusal::internal("mounting a root", &chain(error)),
        error => refused(error),
    }
}
