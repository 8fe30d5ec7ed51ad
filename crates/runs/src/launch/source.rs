//! Opens or makes the workspace of a run: an existing directory, one that the daemon made, or an overlay.

#![expect(clippy::disallowed_methods, reason = "mount points that the daemon made")]

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use crate::record::{Beneath, Changes, Layer, Record, Workspace};
use containers::{Amount, HostUser, IdMap, MountError, OverlayError, UserMap};
use executor::{CloneBounds, Directory, LinkedRepository};
use host_launch::{Owner, TreeBounds};
use identity::Principal;
use operations::Reason;
use refusal::{Refusal, chain};
use rustix::fs::{Gid, Mode, OFlags, Uid};
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;

use super::Launcher;
use super::remote::Remote;
use run_directories::directories::Directories;
use run_directories::linked::{InPlace, in_place, linked};
use run_directories::resources::RunResources;
use run_directories::workspace::{self, Purpose, Roots};

/// Name, within an overlay's layer, of the layer for the repository whose linked work tree the workspace is.
const REPOSITORY: &str = "repository";

/// Settings that bound a clone.
const DISK_QUOTA: &str = "limits.disk_mib, limits.disk_files";

/// The workspace's directory, and the layer if it is an overlay.
pub(crate) struct Source {
    pub(crate) directory: Directory,
    pub(crate) layer: Option<Layer>,
    /// The repository of a linked work tree that is used in place.
    pub(crate) linked: Option<InPlace>,
}

impl From<Directory> for Source {
    fn from(directory: Directory) -> Self {
        Self { directory, layer: None, linked: None }
    }
}

impl Launcher {
    pub(crate) async fn workspace(
        &self,
        record: &Record,
        seen: HostUser,
        principal: &Principal,
        stopping: &CancellationToken,
        resources: &mut RunResources,
    ) -> Result<Source, Refusal> {
        let path = self.directories.workspace(&record.id.to_string());
        let source = match &record.spec.workspace {
            Workspace::Bind { path } => {
                let field = "workspace.bind.path";
                let directory = block_in_place(|| self.roots.open(field, path, Purpose::Own, principal))?;
                let linked = in_place(&self.roots, &directory, principal).await;
                Source { directory, layer: None, linked }
            }
            Workspace::Managed => {
                let made = self
                    .make(record.id, &path, workspace::owner_for(principal))
                    .map_err(|error| Refusal::internal("making the workspace", &error))?;
                resources.made.push(path);
                made.into()
            }
            Workspace::Kept { workspace } => {
                let path = self.directories.workspace(&workspace.to_string());
                let kept = block_in_place(|| workspace::open_own(&path));
                kept.map(Source::from)
                    .map_err(|error| Refusal::internal("opening the workspace of an earlier run", &error))?
            }
            Workspace::Clone { repository, revision } => {
                resources.made.push(path.clone());
                let make = |owner| self.make(record.id, &path, owner);
                let field = "workspace.clone.repository";
                let most = record.spec.limits.disk();
                let bounds = CloneBounds {
                    most: TreeBounds { bytes: most.bytes, files: most.files },
                    limit: "disk-quota",
                    settings: DISK_QUOTA,
                };
                let from = (field, repository.as_path());
                let clone = self.clone_into(make, from, revision.as_deref(), bounds, principal).await?;
                block_in_place(|| within(&clone, field, most))?;
                clone.into()
            }
            Workspace::CloneOfUrl { url, revision, depth } => {
                resources.made.push(path.clone());
                let made = self.make(record.id, &path, workspace::owner_for(principal));
                let made = made.map_err(|error| Refusal::internal("making the workspace", &error))?;
                let remote = Remote { url, revision: revision.as_deref(), depth: *depth, stopping };
                let most = record.spec.limits.disk();
                let bounds = TreeBounds { bytes: most.bytes, files: most.files };
                self.remote_clones.clone_into(&made, remote, record, &self.way_out, bounds).await?;
                block_in_place(|| within(&made, "workspace.clone.url", most))?;
                made.into()
            }
            Workspace::Overlay { path } => {
                let field = "workspace.overlay.path";
                let beneath = block_in_place(|| self.roots.open(field, path, Purpose::Own, principal))?;
                let found = in_place(&self.roots, &beneath, principal).await;
                block_in_place(|| self.overlay(record, &beneath, found, seen, resources))?
            }
            Workspace::Base { base } => self.on_tree((*base).into(), record, seen, resources)?,
            Workspace::Checkpoint { checkpoint, .. } => {
                self.on_tree((*checkpoint).into(), record, seen, resources)?
            }
        };
        if let Some(linked) = &source.linked {
            linked.make_logs().await;
        }
        Ok(source)
    }

    /// Clones a local repository into the directory that `make` makes for its owner, within `bounds`.
    ///
    /// A refusal of its path or its size names the field `field`.
    pub async fn clone_into(
        &self,
        make: impl FnOnce(Owner) -> io::Result<Directory> + Send,
        (field, repository): (&'static str, &Path),
        revision: Option<&str>,
        bounds: CloneBounds,
        principal: &Principal,
    ) -> Result<Directory, Refusal> {
        let source = self.roots.open(field, repository, Purpose::Own, principal)?;
        let linked = linked(&self.roots, field, &source, principal).await?;
        let clone = make(source.owner).map_err(|error| Refusal::internal("making the workspace", &error))?;
        let (from, work_tree) = match &linked {
            Some(linked) => (&linked.directory, Some(linked.work_tree.as_str())),
            None => (&source, None),
        };
        let cloned = executor::clone_repository(from, &clone, revision, work_tree, bounds).await;
        cloned.map_err(|refusal| match refusal.reason {
            Reason::WriteLimit => Refusal { message: format!("{field}: {}", refusal.message), ..refusal },
            _ => refusal,
        })?;
        Ok(clone)
    }

    /// Makes an overlay on a tree of the daemon, which never changes.
    fn on_tree(
        &self,
        tree: Beneath,
        record: &Record,
        seen: HostUser,
        resources: &mut RunResources,
    ) -> Result<Source, Refusal> {
        block_in_place(|| {
            let beneath = workspace::open_own(&self.directories.beneath(tree))
                .map_err(|error| Refusal::internal("opening a base or a checkpoint", &error))?;
            self.overlay(record, &beneath, None, seen, resources)
        })
    }

    /// Makes an overlay on `beneath` with a new layer. It shows the owner's files as files of the user `seen`.
    ///
    /// If `beneath` is a linked work tree, its repository has an overlay as well, whose layer is within the run's layer.
    fn overlay(
        &self,
        record: &Record,
        beneath: &Directory,
        found: Option<InPlace>,
        seen: HostUser,
        resources: &mut RunResources,
    ) -> Result<Source, Refusal> {
        let run = &record.id.to_string();
        let failed = |what| move |error: rustix::io::Errno| Refusal::internal(what, &error);
        let daemon = Owner { uid: 0, gid: 0 };
        if !rustix::process::geteuid().is_root() {
            return Err(refused("an overlay needs a daemon that runs as root"));
        }
        let path = self.directories.layer(run);
        let layers = self
            .make(record.id, &path, daemon)
            .map_err(|error| Refusal::internal("making the layer of an overlay", &error))?;
        resources.made.push(path);
        containers::check_overlay_layers(as_fd(&layers)).map_err(|error| refusal(&error))?;
        let stat = rustix::fs::fstat(&beneath.handle).map_err(failed("looking at a workspace"))?;
        let upper = make_layer(beneath, &layers.handle)?;
        // The time comes from the clock of a file system, like the times that it is compared with later. A change in the same tick counts
        // as later.
        let fresh = rustix::fs::fstat(&upper).map_err(failed("looking at the layer of an overlay"))?;
        let fresh = (fresh.st_ctime, u32::try_from(fresh.st_ctime_nsec).unwrap_or(0));
        // Changes that come from a checkpoint are as old as its run. A tree of the daemon never changes.
        let inherited = record.spec.forked_from.as_ref().and_then(|from| from.since);
        let inherited = inherited.filter(|_| record.spec.workspace.beneath().is_none());
        let layer = Layer {
            changes: Changes::Pending,
            since: inherited.unwrap_or(fresh),
            inode: stat.st_ino,
            owner: beneath.owner,
            begun: false,
        };
        let slots = self.directories.slots(run);
        std::fs::create_dir_all(&slots)
            .map_err(|error| Refusal::internal("making the mount points", &error))?;
        resources.slot_directory = Some(slots.clone());
        let users = self.host.user_map;
        let directory = mounted(beneath, &layers, &slots, seen, users)?;
        let linked = found.and_then(|found| {
            let made = rustix::fs::mkdirat(&layers.handle, REPOSITORY, Mode::RWXU)
                .map_err(failed("making the layer of a repository"))
                .and_then(|()| layer_of_repository(&layers.path))
                .and_then(|layers| {
                    make_layer(&found.repository.directory, &layers.handle)?;
                    overlaid(found, &layers, &slots, seen, users)
                });
            made.inspect_err(|refusal| {
                tracing::warn!(run, why = refusal.message, "an overlay has no git operations");
            })
            .ok()
        });
        Ok(Source { directory, layer: Some(layer), linked })
    }
}

/// Makes the overlay on the repository of a linked work tree.
fn overlaid(
    found: InPlace,
    layers: &Directory,
    slots: &Path,
    seen: HostUser,
    users: Option<UserMap>,
) -> Result<InPlace, Refusal> {
    let LinkedRepository { directory, work_tree } = found.repository;
    let directory = mounted(&directory, layers, slots, seen, users)?;
    Ok(InPlace { repository: LinkedRepository { directory, work_tree }, ..found })
}

/// Makes the directories of an overlay on `beneath` in `layers`, and opens the one for the changes.
fn make_layer(beneath: &Directory, layers: &OwnedFd) -> Result<OwnedFd, Refusal> {
    let failed = |what| move |error: rustix::io::Errno| Refusal::internal(what, &error);
    let stat = rustix::fs::fstat(&beneath.handle).map_err(failed("looking at a workspace"))?;
    // The root directory of the overlay has the attributes of its upper directory.
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    for name in ["upper", "work"] {
        rustix::fs::mkdirat(layers, name, Mode::RWXU).map_err(failed("making the layer of an overlay"))?;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(layers, "upper", flags, Mode::empty())
        .map_err(failed("opening the layer of an overlay"))?;
    let (uid, gid) = (Uid::from_raw(beneath.owner.uid), Gid::from_raw(beneath.owner.gid));
    rustix::fs::fchown(&upper, Some(uid), Some(gid)).map_err(failed("giving a layer its owner"))?;
    rustix::fs::fchmod(&upper, mode).map_err(failed("giving a layer its mode"))?;
    Ok(upper)
}

fn layer_of_repository(layer: &Path) -> Result<Directory, Refusal> {
    workspace::open_own(&layer.join(REPOSITORY))
        .map_err(|error| Refusal::internal("opening the layer of a repository", &error))
}

/// Mounts the overlay on the repository of a linked work tree again, for a run that outlived its daemon.
///
/// The first one was mounted only in the previous daemon's handle and in the jails of its host workers, and ended with them.
pub(crate) fn repository_again(
    run: &str,
    found: InPlace,
    seen: Owner,
    directories: &Directories,
    users: Option<UserMap>,
) -> Result<InPlace, Refusal> {
    let layers = layer_of_repository(&directories.layer(run))?;
    let slots = directories.slots(run);
    std::fs::create_dir_all(&slots).map_err(|error| Refusal::internal("making the mount points", &error))?;
    overlaid(found, &layers, &slots, HostUser { uid: seen.uid, gid: seen.gid }, users)
}

/// Refuses a clone that uses up its run's quota before the run has begun.
fn within(made: &Directory, field: &str, most: Amount) -> Result<(), Refusal> {
    let found = containers::measure(as_fd(made), most)
        .map_err(|error| Refusal::internal("measuring the clone", &error))?;
    if !found.is_more {
        return Ok(());
    }
    Err(Refusal::new(
        Reason::WriteLimit,
        format!(
            "{field}: the clone takes more than the {} MiB in {} files that a run of this profile may have \
             on the daemon's disk ({DISK_QUOTA})",
            most.bytes >> 20,
            most.files
        ),
    )
    .with("limit", "disk-quota"))
}

/// Mounts the overlay of a run that outlived its daemon. Only the returned handle has the mount. Its contents are unchanged.
pub(crate) fn overlay_again(
    run: &str,
    path: &Path,
    layer: Layer,
    seen: Owner,
    directories: &Directories,
    roots: &Roots,
) -> Result<OwnedFd, String> {
    let handle = beneath_again(path, layer, directories, roots)?;
    let beneath = Directory { handle, path: path.to_owned(), owner: layer.owner, is_mapped: false };
    let layers = workspace::open_own(&directories.layer(run)).map_err(|error| chain(&error))?;
    let slots = directories.slots(run);
    std::fs::create_dir_all(&slots).map_err(|error| chain(&error))?;
    let seen = HostUser { uid: seen.uid, gid: seen.gid };
    let mounted = mounted(&beneath, &layers, &slots, seen, None);
    // The directory is empty again.
    let _ = std::fs::remove_dir(&slots);
    mounted.map(|overlay| overlay.handle).map_err(|refusal| refusal.message)
}

/// Opens the directory beneath an overlay, and checks that it is the same as before.
pub(crate) fn beneath_again(
    path: &Path,
    layer: Layer,
    directories: &Directories,
    roots: &Roots,
) -> Result<OwnedFd, String> {
    let is_own = path.starts_with(directories.bases()) || path.starts_with(directories.checkpoints());
    let handle =
        if is_own { workspace::open_own(path).ok().map(|tree| tree.handle) } else { roots.reopen(path) };
    let handle = handle.ok_or("the lower directory of its overlay no longer exists")?;
    let stat = rustix::fs::fstat(&handle).map_err(|error| chain(&error))?;
    if (stat.st_ino, stat.st_uid) != (layer.inode, layer.owner.uid) {
        return Err(
            "the lower directory of its overlay was replaced by another one, or restored from a backup"
                .to_owned(),
        );
    }
    Ok(handle)
}

/// Mounts an overlay with idmapped layers if the file systems support them. Its owner is then the run's user.
fn mounted(
    beneath: &Directory,
    layers: &Directory,
    slots: &Path,
    seen: HostUser,
    users: Option<UserMap>,
) -> Result<Directory, Refusal> {
    let map = IdMap {
        disk_uid: beneath.owner.uid,
        disk_gid: beneath.owner.gid,
        seen_uid: seen.uid,
        seen_gid: seen.gid,
    };
    let path = beneath.path.clone();
    let mount = |map| containers::mount_overlay(as_fd(beneath), as_fd(layers), slots, map, users);
    match mount(Some(map)) {
        Ok(handle) => {
            let owner = Owner { uid: seen.uid, gid: seen.gid };
            Ok(Directory { handle, path, owner, is_mapped: true })
        }
        Err(OverlayError::Mount(MountError::Unsupported(cause))) => {
            tracing::warn!(cause = %cause, "the layers of an overlay cannot be idmapped");
            let handle = mount(None).map_err(|error| refusal(&error))?;
            Ok(Directory { handle, path, owner: beneath.owner, is_mapped: false })
        }
        Err(error) => Err(refusal(&error)),
    }
}

fn as_fd(directory: &Directory) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(&directory.handle)
}

fn refused(why: impl std::fmt::Display) -> Refusal {
    Refusal::new(Reason::PreconditionFailed, format!("workspace.overlay: {why}"))
}

fn refusal(error: &OverlayError) -> Refusal {
    match error {
        OverlayError::Mount(_) => Refusal::internal("mounting an overlay", &chain(error)),
        error => refused(error),
    }
}
