//! A run's mounts: made by us, bound by the engine, and checked from the container's side.

#![expect(clippy::disallowed_methods, reason = "mount points that the daemon made")]

use std::path::Path;

use containers::{Access, IdMap, MountError, MountSlot, MountSpec, Propagation, RunUser};
use jail::Mount;
use ops::Reason;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::record::Ownership;
use super::remains::Remains;
use super::workspace::Directory;
use crate::status::{Refusal, chain};

/// Idmapped mounts where the kernel and the file systems can; else the container runs under the owner's uid.
pub(super) fn mount(
    slots: &Path,
    run: &str,
    directories: &[(Mount, &Directory, Access)],
    remains: &mut Remains,
) -> Result<(Vec<MountSpec>, RunUser, Ownership), Refusal> {
    std::fs::create_dir_all(slots).map_err(|error| Refusal::internal("making the mount points", &error))?;
    remains.slot_directory = Some(slots.to_owned());
    match prepare(slots, directories, Some(RunUser::DEFAULT)) {
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
            let prepared = prepare(slots, directories, None)
                .map_err(|error| Refusal::internal("mounting the workspace", &error))?;
            let mounts = bind(&prepared, directories)?;
            remains.slots = prepared;
            Ok((mounts, user, Ownership::OwnerUid))
        }
        Err(error) => Err(Refusal::internal("mounting the workspace", &chain(&error))),
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
            let map = seen.filter(|_| !directory.is_mapped).map(|seen| IdMap {
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
pub(super) fn arrived(
    agent_host_pid: u32,
    directories: &[(Mount, &Directory, Access)],
) -> Result<(), Refusal> {
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
