//! A container, looked at from outside.

use std::path::PathBuf;
use std::process::Command;

/// What the engine itself says about a container.
pub fn inspect(container: &str) -> serde_json::Value {
    let output = Command::new("docker").args(["inspect", "--type", "container", container]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let containers: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    containers[0].clone()
}

/// Command lines of all processes in a container's pid namespace, whatever cgroup they are in. Sorted. Those that are
/// over and only wait to be reaped are left out.
pub fn processes(container: &str) -> Vec<String> {
    let first = inspect(container)["State"]["Pid"].as_u64().unwrap();
    let namespace = |process: PathBuf| std::fs::read_link(process.join("ns/pid")).ok();
    let wanted = namespace(format!("/proc/{first}").into()).expect("the container runs");
    let mut lines: Vec<String> = std::fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| namespace(path.clone()).is_some_and(|namespace| namespace == wanted))
        .filter_map(|path| std::fs::read(path.join("cmdline")).ok())
        .filter(|line| !line.is_empty())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " ").trim_end().to_owned())
        .collect();
    lines.sort();
    lines
}
