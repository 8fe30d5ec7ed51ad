//! Counts how often a container has hit its limits, by the kernel's counters.
//!
//! A command that is killed for lack of memory only shows signal 9, and one that cannot fork shows its own message. The counters of the
//! container's cgroup are read before and after a command; the difference happened while it ran. A counter that this kernel does not have
//! stays at zero.

use super::count::Count;
use super::hierarchy::dir_of;
use crate::ids::ContainerId;

/// Counts since the container was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LimitEvents {
    /// Processes that the kernel killed for lack of memory, of the container or of the host.
    pub oom_kills: u64,
    /// Times that the container could not get memory because it had reached its own limit. `None` in cgroup v1, whose `memory.failcnt`
    /// stays at zero on recent kernels.
    pub limit_hits: Option<u64>,
    /// Processes and threads that the kernel refused to make because the container had reached its limit.
    pub forks_refused: u64,
}

impl LimitEvents {
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            oom_kills: self.oom_kills.saturating_sub(before.oom_kills),
            limit_hits: self.limit_hits.zip(before.limit_hits).map(|(now, then)| now.saturating_sub(then)),
            forks_refused: self.forks_refused.saturating_sub(before.forks_refused),
        }
    }

    /// Returns true if the kernel killed processes, although the container never reached its own limit meanwhile: the host, or a group
    /// of containers, had no memory left.
    pub fn is_memory_of_host(self) -> bool {
        self.oom_kills > 0 && self.limit_hits == Some(0)
    }
}

/// Open files that contain the counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    memory: Option<Count>,
    processes: Option<Count>,
    /// Number of processes and threads, and its limit.
    number: Option<(Count, Count)>,
}

impl Counters {
    /// Finds the files as [`super::hierarchy::locate`] finds the container. On hybrid hosts the controllers are in v1.
    pub(super) fn locate(membership: &str, mounts: &[u8], container: &ContainerId) -> Self {
        let find = |controller: &str, unified: &str, v1: &str| {
            let file =
                |controller, name| Some(dir_of(controller, membership, mounts, container).ok()?.join(name));
            let files = [file(None, unified), file(Some(controller), v1)];
            files.into_iter().flatten().find_map(|file| Count::open(&file).ok())
        };
        let of_processes = |name: &'static str| find("pids", name, name);
        Self {
            memory: find("memory", "memory.events", "memory.oom_control"),
            processes: of_processes("pids.events"),
            number: of_processes("pids.current").zip(of_processes("pids.max")),
        }
    }

    /// Reads the present counts.
    pub(super) fn read(&self) -> LimitEvents {
        let count = |file: &Option<Count>, name| {
            file.as_ref().and_then(|file| file.read(|text| value(text, name))).unwrap_or(0)
        };
        let limit_hits = || self.memory.as_ref()?.read(|text| value(text, "oom"));
        LimitEvents {
            oom_kills: count(&self.memory, "oom_kill"),
            limit_hits: limit_hits(),
            forks_refused: count(&self.processes, "max"),
        }
    }
}

impl Counters {
    /// Returns true if this many more processes can be made. A process that has ended counts until its parent has waited for it.
    pub(super) fn can_start(&self, more: u64) -> bool {
        let Some((current, most)) = &self.number else { return true };
        let number = |count: &Count| count.read(|text| text.trim().parse::<u64>().ok());
        // The file contains `max` if there is no limit.
        number(most)
            .is_none_or(|most| number(current).is_none_or(|current| current.saturating_add(more) <= most))
    }
}

/// Returns the number on the line `name NUMBER`.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn both_kinds_of_files_are_read() {
        for (text, name, expected) in [
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill", Some(3)),
            ("low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 0\n", "oom_kill", Some(1)),
            ("max 7\n", "max", Some(7)),
            ("oom_kill_disable 0\nunder_oom 0\n", "oom_kill", None),
            ("oom_kill -1\n", "oom_kill", None),
            ("", "max", None),
        ] {
            assert_eq!(value(text, name), expected, "{text:?}");
        }
    }

    #[test]
    fn limit_events_are_counted_since_the_start() {
        let before = LimitEvents { oom_kills: 2, forks_refused: 10, limit_hits: Some(4) };
        let after = LimitEvents { oom_kills: 3, forks_refused: 10, limit_hits: Some(4) };
        let since = after.since(before);
        assert_eq!(since, LimitEvents { oom_kills: 1, forks_refused: 0, limit_hits: Some(0) });
        assert!(since.is_memory_of_host());
        let reached = LimitEvents { limit_hits: Some(5), ..after };
        assert!(!reached.since(before).is_memory_of_host());
        let unknown = LimitEvents { limit_hits: None, ..after };
        assert!(!unknown.since(before).is_memory_of_host(), "the kernel does not say");
        assert!(!before.since(before).is_memory_of_host(), "no process was killed");
        // A container that was made anew counts from the beginning.
        assert_eq!(LimitEvents::default().since(before), LimitEvents::default());
    }

    #[test]
    fn counters_are_found_where_the_container_is() {
        let id = ContainerId::parse(&"ab".repeat(32)).unwrap();
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).join(id.as_str());
        for (name, file, text) in [
            ("unified", "memory.events", "oom 4\noom_kill 1\n"),
            ("memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("pids", "pids.events", "max 3\n"),
            ("pids", "pids.current", "6\n"),
            ("pids", "pids.max", "8\n"),
        ] {
            fs::create_dir_all(at(name)).unwrap();
            fs::write(at(name).join(file), text).unwrap();
        }
        let mount = |name: &str, kind: &str| {
            format!("30 25 0:25 / {}/{name} rw - {kind} cgroup rw,{name}\n", root.path().display())
        };
        let mounts = mount("memory", "cgroup") + &mount("pids", "cgroup") + &mount("unified", "cgroup2");
        let counters = |membership: &str| {
            Counters::locate(&membership.replace("ID", id.as_str()), mounts.as_bytes(), &id)
        };
        let found = |membership: &str| counters(membership).read();
        let hybrid = "4:memory:/ID\n3:pids:/ID\n0::/\n";
        assert_eq!(found(hybrid), LimitEvents { oom_kills: 2, forks_refused: 3, limit_hits: None });
        assert_eq!([1, 2, 3].map(|more| counters(hybrid).can_start(more)), [true, true, false]);
        assert!(counters("0::/ID\n").can_start(3), "the kernel does not say");
        fs::write(at("pids").join("pids.max"), "max\n").unwrap();
        assert!(counters(hybrid).can_start(3));
        assert_eq!(found("0::/ID\n"), LimitEvents { oom_kills: 1, forks_refused: 0, limit_hits: Some(4) });
        assert_eq!(found("4:memory:/\n0::/\n"), LimitEvents::default());
    }
}
