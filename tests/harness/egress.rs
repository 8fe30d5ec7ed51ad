//! The processes of runs with a way out.

use crate::daemon::Daemon;

/// Returns the pids of `coffer-egress` that a daemon started. Each has a child, which does the work.
pub fn workers(daemon: &Daemon) -> Vec<u32> {
    let pid = daemon.pid();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let pids: Vec<u32> = children
        .flat_map(|text| text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect();
    let is_worker = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "coffer-egress")
    };
    pids.into_iter().filter(is_worker).collect()
}

/// Returns a process and its descendants.
pub fn tree(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().map(|child| child.parse().unwrap());
    [pid].into_iter().chain(children.flat_map(tree)).collect()
}
