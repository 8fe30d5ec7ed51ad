//! Processor time and memory of the processes that take part.

use std::path::Path;
use std::time::Duration;

use harness::{inspect, pid_of, processes};

use crate::stage::Stage;

/// Clock ticks of `/proc/PID/stat` in a second, on every Linux that there is.
const TICKS: u64 = 100;

/// A process that is watched.
pub(crate) struct Watched {
    pub(crate) name: &'static str,
    pid: u32,
}

impl Watched {
    pub(crate) fn new(name: &'static str, pid: u32) -> Self {
        Self { name, pid }
    }

    /// Time that it has spent so far, on all processors.
    pub(crate) fn spent(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        // The name before it is in brackets and may hold anything.
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        let ticks: u64 =
            fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1000 / TICKS)
    }
}

/// A part of the memory of a process, such as `Pss` or `Rss`, bytes (`/proc/PID/smaps_rollup`).
pub(crate) fn mapped(pid: u32, part: &str) -> Option<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let of_part = |line: &str| {
        line.strip_prefix(part)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    rollup.lines().find_map(of_part).map(|kib| kib * 1024)
}

/// Everybody between the client and the file.
pub(crate) fn all(stage: &Stage) -> Vec<Watched> {
    let first = inspect(stage.container())["State"]["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let found = [
        ("client", Some(std::process::id())),
        ("cofferd", Some(stage.daemon.pid())),
        ("dockerd", named("dockerd")),
        ("containerd", named("containerd")),
        ("containerd-shim", first.and_then(parent)),
        ("coffer-guest", Some(agent(stage))),
    ];
    found.into_iter().filter_map(|(name, pid)| Some(Watched { name, pid: pid? })).collect()
}

/// The agent that serves the run.
pub(crate) fn agent(stage: &Stage) -> u32 {
    let lines = processes(stage.container());
    let line = lines.iter().find(|line| line.contains("guest serve")).expect("the agent serves");
    pid_of(stage.container(), line).expect("it still does")
}

fn named(name: &str) -> Option<u32> {
    std::fs::read_dir("/proc").ok()?.flatten().map(|entry| entry.path()).find_map(|process| {
        let comm = std::fs::read_to_string(process.join("comm")).ok()?;
        (comm.trim() == name).then(|| pid(&process))?
    })
}

fn parent(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
}

fn pid(process: &Path) -> Option<u32> {
    process.file_name()?.to_str()?.parse().ok()
}
