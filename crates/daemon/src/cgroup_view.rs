//! Gives a daemon in a container the host's view of control groups.
//!
//! On a host with cgroup v2, an engine gives each container a cgroup namespace. A container then sees its own cgroup as
//! the root and cannot see those of other containers, so the daemon could not move commands into cgroups. With the
//! host's process ids (`pid: host`), process 1 is the host's, and its namespace has the view that the daemon needs.
//! Joining it does not let the daemon write anything new: that depends on the mounts.

#![expect(clippy::disallowed_methods, reason = "the host's /proc")]

use std::fs;
use std::io;
use std::os::fd::AsFd as _;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const OURS: &str = "/proc/self/ns/cgroup";
const FIRST: &str = "/proc/1/ns/cgroup";
/// Name of the host's cgroup namespace, the same on every kernel: `PROC_CGROUP_INIT_INO`, linux/proc_ns.h.
const HOSTS: &str = "cgroup:[4026531835]";

/// Joins the cgroup namespace of process 1. This changes the calling thread only: call it while there is no other.
///
/// If it is not possible, runs still work. Each of them logs that its commands get no cgroup.
pub(crate) fn share() {
    match join() {
        Ok(true) => tracing::info!("in a container: control groups are seen as the host sees them"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "the host's view of control groups cannot be shared"),
    }
}

fn join() -> io::Result<bool> {
    let ours = fs::read_link(OURS)?;
    if ours.as_os_str() == HOSTS || ours == fs::read_link(FIRST)? {
        return Ok(false);
    }
    move_into_link_name_space(fs::File::open(FIRST)?.as_fd(), Some(LinkNameSpaceType::ControlGroup))?;
    Ok(true)
}
