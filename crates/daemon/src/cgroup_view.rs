//! The host's view of control groups, for a daemon that lives in a container.
//!
//! Where cgroup v2 rules, an engine gives each container a cgroup namespace: it sees its own cgroup as the root, and
//! those of other containers nowhere. Commands could not be moved into cgroups of their own then. With the host's
//! process ids (`pid: host`) the first process is the host's and has the view that is needed. Joining it lets the daemon
//! write nothing that it could not write before: that is a matter of what is mounted.

#![expect(clippy::disallowed_methods, reason = "the host's /proc")]

use std::fs;
use std::io;
use std::os::fd::AsFd as _;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

const OURS: &str = "/proc/self/ns/cgroup";
const FIRST: &str = "/proc/1/ns/cgroup";
/// The name of the host's own, the same on every kernel: `PROC_CGROUP_INIT_INO`, linux/proc_ns.h.
const HOSTS: &str = "cgroup:[4026531835]";

/// Takes the view of the first process. A view is one thread's: call this while there is but one.
///
/// Where that is not possible runs work all the same; each says in the log that its commands get no cgroup.
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
