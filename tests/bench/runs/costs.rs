//! What an idle run costs the host, for `coffer plan`: by processes, cgroups and files, with one run and with many.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness::inspect_all;
use harness::v1::Run;
use serde_json::{Value, json};

use super::ours::Ours;
use crate::usage::mapped;

/// How long the processor time of what is idle is watched.
const WATCHED: Duration = Duration::from_secs(10);
/// From the end of many runs until the daemon has given their memory back.
pub(crate) const SETTLED: Duration = Duration::from_secs(60);
/// Clock ticks of `/proc/PID/stat` in a second, on every Linux that there is.
const TICKS: u64 = 100;
/// The names of the parts, in the order of [`Snapshot::parts`].
const PARTS: [&str; 4] = ["cofferd", "engine", "shim", "container"];

/// What one part takes, of all runs together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Amounts {
    pub(crate) memory_bytes: u64,
    /// Microseconds in a second.
    pub(crate) cpu_micros: u64,
    pub(crate) pids: u64,
    pub(crate) disk_bytes: u64,
}

/// The host with so many idle runs.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) runs: usize,
    /// `VmRSS` of the daemon, bytes.
    pub(crate) resident: u64,
    /// In the order of [`PARTS`].
    pub(crate) parts: [Amounts; 4],
}

/// The difference between few runs and many.
#[derive(Debug)]
pub(crate) struct Costs {
    pub(crate) few: Snapshot,
    pub(crate) many: Snapshot,
    /// `VmRSS` of the daemon when the many have ended and [`SETTLED`] has passed, bytes.
    pub(crate) ended: u64,
}

impl Snapshot {
    /// Looks at all that runs, which must be idle.
    pub(crate) async fn take(ours: &Ours, runs: &[Run]) -> Self {
        let containers: Vec<Value> = inspect_all(runs.iter().map(|run| run.container_id.as_str()));
        let parts = Processes::find(ours, &containers);
        let before = parts.each_cpu();
        tokio::time::sleep(WATCHED).await;
        let after = parts.each_cpu();
        let mut amounts = parts.amounts();
        for (amounts, (before, after)) in amounts.iter_mut().zip(before.into_iter().zip(after)) {
            amounts.cpu_micros = after.saturating_sub(before) * (1_000_000 / TICKS) / WATCHED.as_secs();
        }
        let [cofferd, engine, ..] = &mut amounts;
        cofferd.disk_bytes = allocated(&ours.daemon.state_dir());
        engine.disk_bytes = containers.iter().flat_map(places).map(|place| allocated(&place)).sum();
        Self { runs: runs.len(), resident: resident(ours), parts: amounts }
    }
}

/// Memory of the daemon, bytes.
pub(crate) fn resident(ours: &Ours) -> u64 {
    harness::memory(ours.daemon.pid(), "VmRSS") * 1024
}

impl Costs {
    /// Of each run.
    pub(crate) fn of_a_run(&self) -> [Amounts; 4] {
        let runs = u64::try_from(self.many.runs - self.few.runs).unwrap();
        let mut parts = [Amounts::default(); 4];
        for (part, (few, many)) in parts.iter_mut().zip(self.few.parts.iter().zip(&self.many.parts)) {
            let each = |of: fn(&Amounts) -> u64| of(many).saturating_sub(of(few)).div_ceil(runs);
            *part = Amounts {
                memory_bytes: each(|it| it.memory_bytes),
                cpu_micros: each(|it| it.cpu_micros),
                pids: each(|it| it.pids),
                disk_bytes: each(|it| it.disk_bytes),
            };
        }
        parts
    }

    /// Of daemon and engine without a run: what they took with few, less what those cost.
    fn base(&self) -> Amounts {
        let (runs, each) = (u64::try_from(self.few.runs).unwrap(), self.of_a_run());
        let mut base = Amounts::default();
        for (few, each) in self.few.parts.iter().zip(each).take(2) {
            let left = |of: fn(&Amounts) -> u64| of(few).saturating_sub(of(&each) * runs);
            base.memory_bytes += left(|it| it.memory_bytes);
            base.cpu_micros += left(|it| it.cpu_micros);
            base.pids += left(|it| it.pids);
            base.disk_bytes += left(|it| it.disk_bytes);
        }
        base
    }

    /// As `coffer plan --costs` reads them.
    pub(crate) fn json(&self, engine: &str, kernel: &str) -> Value {
        let parts = PARTS.iter().zip(self.of_a_run()).map(|(name, part)| ((*name).to_owned(), part.json()));
        json!({
            "measured": {
                "date": today(),
                "cofferd": env!("CARGO_PKG_VERSION"),
                "engine": engine,
                "kernel": kernel,
                "image": "images/dev",
                "runs": self.many.runs,
            },
            "base": self.base().json(),
            "run": Value::Object(parts.collect()),
        })
    }

    pub(crate) fn by_part(&self) -> impl Iterator<Item = (&'static str, Amounts)> {
        PARTS.into_iter().zip(self.of_a_run())
    }
}

impl Amounts {
    fn json(self) -> Value {
        let Self { memory_bytes, cpu_micros, pids, disk_bytes } = self;
        json!({ "memory_bytes": memory_bytes, "cpu_micros": cpu_micros, "pids": pids, "disk_bytes": disk_bytes })
    }
}

/// The processes of each part, by pid, and the cgroups of the containers.
struct Processes {
    parts: [BTreeSet<u32>; 4],
    cgroups: Vec<PathBuf>,
}

impl Processes {
    fn find(ours: &Ours, containers: &[Value]) -> Self {
        let (mut by_namespace, mut children) =
            (HashMap::<PathBuf, Vec<u32>>::new(), HashMap::<u32, Vec<u32>>::new());
        let (mut engine, mut parents) = (BTreeSet::new(), HashMap::new());
        for pid in pids() {
            let Ok(namespace) = fs::read_link(format!("/proc/{pid}/ns/pid")) else { continue };
            let (Some(parent), Some(name)) = (status(pid, "PPid"), comm(pid)) else { continue };
            by_namespace.entry(namespace).or_default().push(pid);
            parents.insert(pid, parent);
            children.entry(parent).or_default().push(pid);
            if ["dockerd", "containerd"].contains(&name.as_str()) {
                engine.insert(pid);
            }
        }
        let first =
            |container: &Value| container["State"]["Pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let firsts: Vec<u32> = containers.iter().filter_map(first).collect();
        assert_eq!(firsts.len(), containers.len(), "a run has no process");
        let shims = firsts.iter().filter_map(|pid| parents.get(pid).copied()).collect();
        let within = firsts.iter().filter_map(|pid| fs::read_link(format!("/proc/{pid}/ns/pid")).ok());
        let within =
            within.flat_map(|namespace| by_namespace.get(&namespace).cloned().unwrap_or_default()).collect();
        let mut daemon = BTreeSet::from([ours.daemon.pid()]);
        let mut open = vec![ours.daemon.pid()];
        while let Some(pid) = open.pop() {
            let beneath = children.get(&pid).into_iter().flatten();
            open.extend(beneath.copied().filter(|&child| daemon.insert(child)));
        }
        let cgroups = containers
            .iter()
            .zip(&firsts)
            .filter_map(|(container, &pid)| memory_cgroup(pid, container["Id"].as_str().unwrap_or_default()));
        Self { parts: [daemon, engine, shims, within], cgroups: cgroups.collect() }
    }

    /// Processor time so far, ticks.
    fn each_cpu(&self) -> [u64; 4] {
        self.parts.each_ref().map(|part| part.iter().filter_map(|&pid| ticks(pid)).sum())
    }

    fn amounts(&self) -> [Amounts; 4] {
        let mut amounts = self.parts.each_ref().map(|part| Amounts {
            memory_bytes: part.iter().filter_map(|&pid| mapped(pid, "Pss")).sum(),
            pids: part.iter().filter_map(|&pid| status(pid, "Threads")).map(u64::from).sum(),
            ..Amounts::default()
        });
        // Where the kernel counts for the container, its own memory is in it.
        let counted: u64 = self.cgroups.iter().filter_map(|file| number(file)).sum();
        let [.., container] = &mut amounts;
        container.memory_bytes = container.memory_bytes.max(counted);
        amounts
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn comm(pid: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|name| name.trim().to_owned())
}

fn status(pid: u32, key: &str) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':')?.trim().parse().ok())
}

fn ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it is in brackets and may hold anything.
    let (_, fields) = stat.rsplit_once(") ")?;
    Some(fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
}

/// The file with the memory of a container, in the first or the second version of cgroups.
fn memory_cgroup(pid: u32, container: &str) -> Option<PathBuf> {
    let lines = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    lines.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.current"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.usage_in_bytes")
            }
            _ => return None,
        };
        // The first process may be in a group of its own within the container's.
        let end = path.find(container).map(|at| at + container.len()).filter(|_| !container.is_empty())?;
        let end = path[end..].find('/').map_or(path.len(), |more| end + more);
        Some(Path::new(root).join(path[..end].trim_start_matches('/')).join(file))
            .filter(|file| file.exists())
    })
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// Where the engine has files of a container.
fn places(container: &Value) -> Vec<PathBuf> {
    let layer = container["GraphDriver"]["Data"]["UpperDir"].as_str().map(Path::new);
    let files = container["HostnamePath"].as_str().map(Path::new);
    [layer, files].into_iter().flatten().filter_map(|path| path.parent().map(Path::to_owned)).collect()
}

/// What a directory takes on its own file system, bytes.
fn allocated(directory: &Path) -> u64 {
    let Ok(here) = fs::symlink_metadata(directory) else { return 0 };
    let (mut total, mut open) = (here.blocks() * 512, vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.path().symlink_metadata() else { continue };
            if found.dev() != here.dev() {
                continue;
            }
            total += found.blocks() * 512;
            if found.is_dir() {
                open.push(entry.path());
            }
        }
    }
    total
}

/// Such as 2026-11-25.
pub(crate) fn today() -> String {
    let output = std::process::Command::new("date").args(["--utc", "+%F"]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
