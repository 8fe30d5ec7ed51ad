//! The mounts of a run. The daemon makes them, the engine binds them, and they are checked from the container's side.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use containers::{
    Boundary, EtcFiles, Hardening, HostUser, IdMap, MountError, MountSlot, MountSpec, Propagation, RunUser,
    UserMap,
};
use executor::Directory;
use executor::root_layer::RootLayer;
use jail::{Mount, MountMode};
use operations::Reason;
use refusal::{Refusal, chain};
use run_record::Ownership;
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat, StatVfsMountFlags};
use rustix::io::Errno;

use crate::linked::InPlace;
use crate::resources::RunResources;

/// Type of a file system in memory, as statfs(2) reports it.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// Directories of a run.
pub struct Opened {
    pub workspace: Directory,
    pub state: Directory,
    pub private: Directory,
    pub log: Directory,
    pub pkg: Option<Directory>,
    /// The repository of a linked work tree. Only the jail of the host worker has it.
    pub linked: Option<InPlace>,
}

impl Opened {
    /// Returns the mount points and their directories.
    pub fn shown(&self, access: MountMode) -> Vec<Shown<'_>> {
        let mut shown = vec![
            Shown::new(Mount::Project, &self.workspace, access),
            Shown::new(Mount::State, &self.state, MountMode::ReadWrite),
            Shown::log(&self.log),
        ];
        if let Some(pkg) = &self.pkg {
            shown.push(Shown::new(Mount::Pkg, pkg, MountMode::ReadOnly));
        }
        shown
    }
}

/// A directory, and its location in the container.
pub struct Shown<'d> {
    /// Name of its mount point among the run's slots.
    slot: &'static str,
    /// Path in the container.
    pub target: &'static str,
    /// Name in messages.
    pub name: &'static str,
    pub directory: &'d Directory,
    pub access: MountMode,
}

impl<'d> Shown<'d> {
    fn new(mount: Mount, directory: &'d Directory, access: MountMode) -> Self {
        let target = mount.container_path();
        Self { slot: &target[1..], target, name: mount.alias(), directory, access }
    }

    /// Returns the run's log, which no user in the container can write.
    fn log(directory: &'d Directory) -> Self {
        let (slot, target, name) = ("log", "/state/logs", "@state/logs");
        Self { slot, target, name, directory, access: MountMode::ReadOnly }
    }

    /// Returns the flags that the mount has in the container.
    fn flags(&self) -> StatVfsMountFlags {
        let every = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
        match self.access {
            MountMode::ReadOnly => every | StatVfsMountFlags::RDONLY,
            MountMode::ReadWrite => every,
        }
    }

    /// Returns the path of its mount point on the host.
    pub fn slot(&self, slots: &Path) -> PathBuf {
        slots.join(self.slot)
    }
}

/// Makes idmapped mounts if the kernel and the file system support them.
///
/// Otherwise the container runs under the owner's uid, provided that the container's ids are the host's.
pub fn mount(
    slots: &Path,
    run: &str,
    directories: &[Shown<'_>],
    hardening: &Hardening,
    users: Option<UserMap>,
    resources: &mut RunResources,
) -> Result<(Vec<MountSpec>, RunUser, Ownership), Refusal> {
    resources.make_slots(slots)?;
    let (user, boundary) = (hardening.run_as.user(), hardening.boundary);
    match prepare(slots, directories, Some(user.on_host(users)), boundary) {
        Ok(prepared) => {
            let mounts = bind(&prepared, directories)?;
            resources.slots = prepared;
            Ok((mounts, user, Ownership::Idmapped))
        }
        Err(MountError::Unsupported(_)) if users.is_some() => Err(Refusal::new(
            Reason::PreconditionFailed,
            "the engine maps the users of containers (userns-remap), so that the workspace and state_dir have to be on file systems \
             with idmapped mounts, as ext4 and xfs are",
        )),
        Err(MountError::Unsupported(cause)) => {
            tracing::warn!(run, cause = %cause, "no idmapped mounts: the container runs under the owner's uid");
            let owner = directories.first().map(|shown| shown.directory.owner);
            let user = owner.and_then(|owner| RunUser::new(owner.uid, owner.gid).ok()).ok_or_else(|| {
                Refusal::invalid(
                    "workspace",
                    "belongs to root, and this file system has no idmapped mounts: give it to an ordinary user",
                )
            })?;
            let prepared = prepare(slots, directories, None, boundary)
                .map_err(|error| Refusal::internal("mounting the workspace", &error))?;
            let mounts = bind(&prepared, directories)?;
            resources.slots = prepared;
            Ok((mounts, user, Ownership::OwnerUid))
        }
        Err(error) => Err(Refusal::internal("mounting the workspace", &chain(&error))),
    }
}

fn prepare(
    slots: &Path,
    directories: &[Shown<'_>],
    seen: Option<HostUser>,
    boundary: Boundary,
) -> Result<Vec<MountSlot>, MountError> {
    use std::os::fd::AsFd as _;
    directories
        .iter()
        .map(|shown| {
            let directory = shown.directory;
            let map = seen.filter(|_| !directory.is_mapped).map(|seen| IdMap {
                disk_uid: directory.owner.uid,
                disk_gid: directory.owner.gid,
                seen_uid: seen.uid,
                seen_gid: seen.gid,
            });
            let (source, slot) = (directory.handle.as_fd(), shown.slot(slots));
            match boundary {
                Boundary::HostKernel => MountSlot::prepare(source, &slot, map, shown.access),
                Boundary::OwnKernel => MountSlot::prepare_served(source, &slot, map, shown.access),
            }
        })
        .collect()
}

/// Returns the mounts as the engine has to name them.
pub fn bind(slots: &[MountSlot], directories: &[Shown<'_>]) -> Result<Vec<MountSpec>, Refusal> {
    slots
        .iter()
        .zip(directories)
        .map(|(slot, shown)| {
            let read_only = shown.access == MountMode::ReadOnly;
            MountSpec::new(slot.path(), shown.target, read_only, Propagation::Private)
                .map_err(|error| Refusal::internal("describing a mount", &error))
        })
        .collect()
}

/// Checks the flags of mounts that entered a container while it ran. No process in the container can change them.
pub fn are_restricted(host_pid: u32, directories: &[Shown<'_>]) -> Result<(), Refusal> {
    let failed = |error: Errno| Refusal::internal("looking at the flags of the container's mounts", &error);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{host_pid}/root"), flags, Mode::empty()).map_err(failed)?;
    for shown in directories {
        let place = &shown.target[1..];
        let seen =
            rustix::fs::openat(&root, place, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?;
        let has = rustix::fs::fstatvfs(&seen).map_err(failed)?.f_flag;
        if !has.contains(shown.flags()) {
            let message = format!("the mount at {} does not have the requested flags", shown.name);
            return Err(Refusal::new(Reason::EngineUnavailable, message));
        }
    }
    Ok(())
}

/// Makes `/tmp` writable for all users. Older runtimes give the file system in memory the mode of the image's directory, whatever mode was
/// requested. No process of the container can unmount it.
fn open_tmp(root: &OwnedFd) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let tmp = match rustix::fs::openat(root, "tmp", flags, Mode::empty()) {
        Ok(tmp) => tmp,
        // The files of a container with its own kernel are not visible here.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(error) => return Err(error),
    };
    let all = Mode::RWXU | Mode::RWXG | Mode::RWXO | Mode::SVTX;
    let is_in_memory = rustix::fs::fstatfs(&tmp)?.f_type == TMPFS_MAGIC;
    if is_in_memory && Mode::from_raw_mode(rustix::fs::fstat(&tmp)?.st_mode) != all {
        rustix::fs::fchmod(&tmp, all)?;
    }
    Ok(())
}

/// Checks that the container sees the intended directory at each of its mount points.
///
/// The engine binds by path, in its own view of the host's mounts. That view can differ from the daemon's, as for a daemon in a container
/// whose state directory is not shared with the host. The bind then shows an empty directory, without an error.
///
/// `host_pid` is a process that has the container's root. `own` has the daemon's files that are mounted there.
pub fn arrived(
    host_pid: u32,
    directories: &[Shown<'_>],
    own: &EtcFiles,
    writable: Option<&RootLayer>,
) -> Result<(), Refusal> {
    let failed = |error: Errno| Refusal::internal("looking at the container's mounts", &error);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(format!("/proc/{host_pid}/root"), flags, Mode::empty()).map_err(failed)?;
    let same = |seen: &OwnedFd, meant: &Stat, name: &str| {
        let seen = rustix::fs::fstat(seen).map_err(failed)?;
        if (seen.st_dev, seen.st_ino) == (meant.st_dev, meant.st_ino) {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::EngineUnavailable,
            format!(
                "the engine does not show the directory that was mounted at {name}: state_dir must be a shared mount at the same path for the engine; see the book, \"Compose\""
            ),
        ))
    };
    for shown in directories {
        // This checks the mount point itself and no path beneath it. It is in a read-only root, or on a mount that no process can remove.
        let place = &shown.target[1..];
        let seen =
            rustix::fs::openat(&root, place, flags | OFlags::NOFOLLOW, Mode::empty()).map_err(failed)?;
        same(&seen, &rustix::fs::fstat(&shown.directory.handle).map_err(failed)?, shown.name)?;
    }
    if let Some(writable) = writable {
        writable.arrived(&root)?;
    }
    if let Err(error) = open_tmp(&root) {
        tracing::warn!(%error, "the mode of a run's /tmp cannot be set");
    }
    for (target, source) in own {
        // An image may have links there. The engine has followed them within the container, and so does this. No process in the container
        // can remove or move a mount.
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let seen = rustix::fs::openat2(&root, &target[1..], flags, Mode::empty(), resolve).map_err(failed)?;
        same(&seen, &rustix::fs::stat(source).map_err(failed)?, target)?;
    }
    Ok(())
}
