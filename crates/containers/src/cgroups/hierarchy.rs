//! The cgroup hierarchy that can end a container's processes, and the container's directory in it.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use leftovers::mountinfo;

use super::{CgroupError, failed};
use crate::ids::ContainerId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hierarchy {
    Unified,
    /// The freezer of cgroup v1.
    Freezer,
}

impl Hierarchy {
    /// Returns the name of the file without which the hierarchy cannot be used.
    pub(super) fn control_file(self) -> &'static str {
        match self {
            Self::Unified => "cgroup.kill",
            Self::Freezer => "freezer.state",
        }
    }

    /// Freezes or thaws all processes in this cgroup and below it.
    ///
    /// On v1 a process that is being forked at that moment may be missed; the next write freezes it.
    pub(super) fn freeze(self, dir: &Path, frozen: bool) -> Result<(), CgroupError> {
        let (file, value) = match (self, frozen) {
            (Self::Unified, true) => ("cgroup.freeze", "1"),
            (Self::Unified, false) => ("cgroup.freeze", "0"),
            (Self::Freezer, true) => ("freezer.state", "FROZEN"),
            (Self::Freezer, false) => ("freezer.state", "THAWED"),
        };
        fs::write(dir.join(file), value).map_err(failed("freeze or thaw the commands"))
    }

    /// Returns true if all processes of the cgroup are frozen. A cgroup that does not exist is not frozen.
    pub(super) fn is_frozen(self, dir: &Path) -> Result<bool, CgroupError> {
        let (file, frozen) = match self {
            Self::Unified => ("cgroup.events", "frozen 1"),
            Self::Freezer => ("freezer.state", "FROZEN"),
        };
        match fs::read_to_string(dir.join(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            read => Ok(read
                .map_err(failed("see whether the commands are frozen"))?
                .lines()
                .any(|line| line == frozen)),
        }
    }
}

/// Finds the container's cgroup from `/proc/PID/cgroup` and `/proc/self/mountinfo`.
///
/// The unified hierarchy is preferred, but only if the container has a cgroup there. On hybrid hosts every container is in its root.
pub(super) fn locate(
    membership: &str,
    mounts: &[u8],
    container: &ContainerId,
) -> Result<(Hierarchy, PathBuf), CgroupError> {
    let mut reason = "the process is in no cgroup hierarchy with cgroup.kill or a freezer";
    for (hierarchy, controller) in [(Hierarchy::Unified, None), (Hierarchy::Freezer, Some("freezer"))] {
        match dir_of(controller, membership, mounts, container) {
            Ok(dir) => return Ok((hierarchy, dir)),
            Err(Absent::NotInIt) => {}
            Err(Absent::Foreign) => reason = "the process is not in a cgroup of this container",
            Err(Absent::OutOfSight) => {
                reason = "its cgroup is invisible to this process; share the host's cgroup namespace";
            }
        }
    }
    Err(CgroupError::Unavailable(reason))
}

/// Reason why a container has no directory in a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absent {
    NotInIt,
    Foreign,
    OutOfSight,
}

/// Returns the container's directory in the hierarchy of a v1 controller, or in the unified hierarchy for `None`.
pub(super) fn dir_of(
    controller: Option<&str>,
    membership: &str,
    mounts: &[u8],
    container: &ContainerId,
) -> Result<PathBuf, Absent> {
    let path = membership.lines().find_map(|line| path_in(line, controller)).ok_or(Absent::NotInIt)?;
    if !path.contains(container.as_str()) {
        return Err(Absent::Foreign);
    }
    mounted(mounts, controller, Path::new(path)).ok_or(Absent::OutOfSight)
}

/// Returns the path of a line such as `0::/a/b` or `7:freezer:/a/b` if the line is about this hierarchy.
fn path_in<'m>(line: &'m str, controller: Option<&str>) -> Option<&'m str> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let ours = match controller {
        None => id == "0" && controllers.is_empty(),
        Some(wanted) => controllers.split(',').any(|controller| controller == wanted),
    };
    ours.then_some(path)
}

fn mounted(mounts: &[u8], controller: Option<&str>, path: &Path) -> Option<PathBuf> {
    let plain =
        |path: &Path| path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    mountinfo::entries(mounts)
        .filter(|entry| match controller {
            None => entry.file_system == "cgroup2",
            Some(wanted) => {
                entry.file_system == "cgroup" && entry.super_options.split(',').any(|option| option == wanted)
            }
        })
        .find_map(|entry| {
            let below = path.strip_prefix(&entry.root).ok()?;
            (plain(path) && !below.as_os_str().is_empty()).then(|| entry.mount_point.join(below))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &[u8] = b"30 25 0:25 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n\
        31 25 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
        32 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    fn id() -> ContainerId {
        ContainerId::parse(&"ab".repeat(32)).unwrap()
    }

    fn found(membership: &str) -> Result<(Hierarchy, PathBuf), String> {
        locate(&membership.replace("ID", id().as_str()), MOUNTS, &id()).map_err(|error| error.to_string())
    }

    fn at(dir: &str) -> PathBuf {
        dir.replace("ID", id().as_str()).into()
    }

    #[test]
    fn the_unified_cgroup_of_a_container_takes_precedence() {
        let both = "7:freezer:/docker/ID\n0::/system.slice/docker-ID.scope\n";
        let dir = at("/sys/fs/cgroup/unified/system.slice/docker-ID.scope");
        assert_eq!(found(both), Ok((Hierarchy::Unified, dir)));
    }

    #[test]
    fn hybrid_hosts_use_the_freezer() {
        let hybrid = "7:freezer:/docker/ID\n3:pids:/docker/ID\n0::/\n";
        assert_eq!(found(hybrid), Ok((Hierarchy::Freezer, at("/sys/fs/cgroup/freezer/docker/ID"))));
        let joined = "7:cpu,freezer:/docker/ID\n";
        assert_eq!(found(joined).unwrap().0, Hierarchy::Freezer);
    }

    #[test]
    fn another_container_s_or_the_host_s_cgroup_is_never_used() {
        let strange = format!("7:freezer:/docker/{}\n0::/\n", "cd".repeat(32));
        for membership in ["", "7:freezer:/\n0::/\n", "garbage", &strange, "3:pids:/docker/ID\n"] {
            assert!(found(membership).is_err(), "{membership:?}");
        }
    }

    #[test]
    fn a_path_that_leaves_its_mount_is_refused() {
        assert!(found("0::/../docker/ID\n").unwrap_err().contains("namespace"));
        let inner = b"32 25 0:27 /kubepods/other /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert!(locate(&format!("0::/docker/{}\n", id()), inner, &id()).is_err());
    }
}
