//! A container, looked at from outside.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::engine::docker;

/// What the engine itself says about a container.
pub fn inspect(container: &str) -> serde_json::Value {
    inspect_all([container]).remove(0)
}

/// The same of several, in their order.
pub fn inspect_all<'a>(containers: impl IntoIterator<Item = &'a str>) -> Vec<serde_json::Value> {
    let output = docker().args(["inspect", "--type", "container"]).args(containers).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Command lines of all processes in a container's pid namespace, whatever cgroup they are in. Sorted. Those that are
/// over and only wait to be reaped are left out, and so is the agent's copy that waits for the next command.
pub fn processes(container: &str) -> Vec<String> {
    let found = in_namespace(&pid_namespace(container));
    let mut lines: Vec<String> = found.into_iter().map(|(_, line)| line).collect();
    lines.sort();
    lines
}

/// The host's pid of the process in a container that has this command line.
pub fn pid_of(container: &str, line: &str) -> Option<u32> {
    pid_in(&pid_namespace(container), line)
}

/// The same in a pid namespace, without a question to the engine.
pub fn pid_in(namespace: &PidNamespace, line: &str) -> Option<u32> {
    in_namespace(namespace).into_iter().find_map(|(pid, found)| (found == line).then_some(pid))
}

/// A value of `/proc/PID/status` on the host, KiB.
pub fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

/// Command line of what serves, and of its copies until they have become commands.
const AGENT: &[u8] = b"/.cofferdam/guest\0serve\0";

fn cmdline(process: &Path) -> Option<Vec<u8>> {
    std::fs::read(process.join("cmdline")).ok().filter(|line| !line.is_empty())
}

fn parent(process: &Path) -> Option<PathBuf> {
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let pid = status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
    Some(Path::new("/proc").join(pid))
}

/// A pid namespace, held: its number goes to no other one, even when its last process is over.
#[derive(Debug)]
pub struct PidNamespace {
    name: PathBuf,
    _held: File,
}

/// The pid namespace of a container that runs.
pub fn pid_namespace(container: &str) -> PidNamespace {
    let first = inspect(container)["State"]["Pid"].as_u64().unwrap();
    let path = format!("/proc/{first}/ns/pid");
    let held = File::open(&path).expect("the container runs");
    PidNamespace { name: std::fs::read_link(path).unwrap(), _held: held }
}

/// Every process in a pid namespace, as a directory of `/proc`. Those that are over have none.
pub fn in_pid_namespace(namespace: &PidNamespace) -> Vec<PathBuf> {
    let is_in =
        |path: &PathBuf| std::fs::read_link(path.join("ns/pid")).is_ok_and(|found| found == namespace.name);
    std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path()).filter(is_in).collect()
}

/// Pid on the host and command line of each.
fn in_namespace(namespace: &PidNamespace) -> Vec<(u32, String)> {
    in_pid_namespace(namespace)
        .into_iter()
        .filter_map(|path| {
            let pid = path.file_name()?.to_str()?.parse().ok()?;
            let line = cmdline(&path)?;
            if line == AGENT
                && parent(&path).is_some_and(|parent| cmdline(&parent).is_some_and(|line| line == AGENT))
            {
                return None;
            }
            Some((pid, String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned()))
        })
        .collect()
}
