//! A process of the host that works for one container, and shares its limits.
//!
//! It is put below the container's cgroup, in the hierarchies that limit memory and processor time. It is not put into the freezer of
//! cgroup v1, and no group of commands has it, so a pause of the commands does not stop it. It may not outlive the container by long:
//! the engine cannot remove the cgroup before.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::hierarchy::dir_of;
use super::process::HostProcess;
use super::{CgroupError, ContainerCgroup, failed};
use crate::ids::ContainerId;

/// Name of the cgroup.
pub(super) const COMPANION: &str = "cofferdam-companion";
/// Controllers of cgroup v1 whose limits the process shares.
const LIMITS: [&str; 2] = ["memory", "cpu"];

/// Finds the container's directories in the hierarchies that limit it. On hybrid hosts the controllers are in v1.
pub(super) fn locate(membership: &str, mounts: &[u8], container: &ContainerId) -> Vec<PathBuf> {
    let of = |controller| dir_of(controller, membership, mounts, container).ok();
    if let Some(unified) = of(None) {
        return vec![unified];
    }
    let mut found: Vec<_> = LIMITS.into_iter().filter_map(|controller| of(Some(controller))).collect();
    // Controllers may share a hierarchy.
    found.dedup();
    found
}

impl ContainerCgroup {
    /// Puts a process of the host and its children below the container's limits of memory and processor time.
    ///
    /// Their future children start there, too. Blocks for some milliseconds for each of them, because the kernel waits.
    pub fn add_companion(&self, process: &HostProcess) -> Result<(), CgroupError> {
        if self.limited.is_empty() {
            return Err(CgroupError::Unavailable(
                "its limits are in no cgroup that is visible to this process",
            ));
        }
        self.add_one(process)?;
        process.children().iter().try_for_each(|child| self.add_one(child))
    }

    fn add_one(&self, process: &HostProcess) -> Result<(), CgroupError> {
        for dir in &self.limited {
            let dir = dir.join(COMPANION);
            match fs::create_dir(&dir) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed("make a cgroup beside the commands")(error));
                }
                _ => {}
            }
            fs::write(dir.join("cgroup.procs"), process.pid().to_string())
                .map_err(failed("move a process below the container's limits"))?;
        }
        // The pid may have been reused otherwise.
        if process.is_alive() { Ok(()) } else { Err(CgroupError::NoSuchProcess) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_found_in_either_hierarchy() {
        let id = ContainerId::parse(&"ab".repeat(32)).unwrap();
        let mount = |name: &str, kind: &str, options: &str| {
            format!("30 25 0:25 / /cg/{name} rw - {kind} cgroup rw,{options}\n")
        };
        let mounts = [
            mount("memory", "cgroup", "memory"),
            mount("cpu", "cgroup", "cpu,cpuacct"),
            mount("freezer", "cgroup", "freezer"),
            mount("unified", "cgroup2", ""),
        ]
        .concat();
        let found = |membership: &str| -> Vec<String> {
            let membership = membership.replace("ID", id.as_str());
            let found = locate(&membership, mounts.as_bytes(), &id).into_iter();
            found.map(|dir| dir.display().to_string().replace(id.as_str(), "ID")).collect()
        };
        assert_eq!(
            found("9:freezer:/ID\n4:memory:/d/ID\n3:cpu,cpuacct:/d/ID\n0::/\n"),
            ["/cg/memory/d/ID", "/cg/cpu/d/ID"]
        );
        assert_eq!(found("0::/d/ID\n"), ["/cg/unified/d/ID"]);
        // Of another container, or of none.
        assert_eq!(found("4:memory:/d/other\n3:cpu,cpuacct:/\n0::/\n"), Vec::<String>::new());
    }
}
