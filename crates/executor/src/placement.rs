//! Places each command in a separate cgroup, so that all processes that it starts can be ended reliably.
//!
//! The guest starts the command stopped and reports its pid. The daemon moves the process into a leaf cgroup before its first instruction,
//! so that no process that it forks is ever outside. Process groups cannot ensure this, because `setsid` leaves them.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use containers::{CgroupError, ContainerCgroup, Group, Leaf, LimitEvents};
use operations::KillEvidence;
use parking_lot::Mutex;
use worker_protocol::client::Placement;

use crate::ending::{end, nothing_left};
use crate::left::{self, Left};
use crate::metered::Metered;

pub(crate) struct LeafPlacement {
    guest_host_pid: u32,
    group: Group,
    name: String,
    state: Arc<State>,
}

struct State {
    cgroup: ContainerCgroup,
    leaf: Mutex<Option<Leaf>>,
    counts: Mutex<Counts>,
    keep: Mutex<Keep>,
}

/// Handling of the processes that the command leaves running.
#[derive(Default)]
struct Keep {
    /// Name of the leaf in which they are kept. `None` if they are ended.
    name: Option<String>,
    /// Pid, in the container, of the process that reads their output.
    drain: Option<u32>,
    /// Processes that were kept.
    left: Option<Left>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// Limit events: until the command has finished the container's counts at its start, afterwards the events that were added.
    events: LimitEvents,
    /// Processor time that the waiting process used in the leaf before the command began.
    before: Duration,
    /// Resources of the command alone. Known after it has finished.
    command: Metered,
}

/// Returns a name that no other leaf of a container has, including those of lost workers and earlier daemons.
pub(crate) fn unique(what: &str) -> String {
    static NAMES: LazyLock<(RandomState, AtomicU64)> = LazyLock::new(Default::default);
    let (state, made) = &*NAMES;
    let number = made.fetch_add(1, Ordering::Relaxed);
    // The random part identifies this daemon, and the number this leaf.
    format!("{what}-{:08x}-{number:x}", state.hash_one(()) >> 32)
}

impl LeafPlacement {
    /// Creates the placement of a process, such as the command of a call or a session. `name` becomes the name of its leaf.
    pub(crate) fn new(cgroup: ContainerCgroup, guest_host_pid: u32, name: String) -> Self {
        let state =
            State { cgroup, leaf: Mutex::default(), counts: Mutex::default(), keep: Mutex::default() };
        Self { guest_host_pid, group: Group::Ordinary, name, state: Arc::new(state) }
    }

    /// Selects another group than the ordinary one, for a process that runs while the others are frozen.
    pub(crate) fn among(self, group: Group) -> Self {
        Self { group, ..self }
    }

    /// Requests that the processes that the command leaves running are kept under this name.
    pub(crate) fn keep(&self, name: String) {
        self.state.keep.lock().name = Some(name);
    }

    /// Takes the processes that were kept.
    pub(crate) fn left(&self) -> Option<Left> {
        self.state.keep.lock().left.take()
    }

    /// Begins to count for the command, if its process was placed earlier and waited.
    ///
    /// Reads three small files of the kernel, which takes less time than to involve another thread.
    pub(crate) fn begin(&self) {
        self.state.begin(self.state.leaf.lock().as_ref());
    }

    /// Returns the limits that the container met while the command ran. Known after it has finished.
    pub(crate) fn events(&self) -> LimitEvents {
        self.state.counts.lock().events
    }

    /// Returns the resources that the command used. Known after it has finished.
    pub(crate) fn metered(&self) -> Metered {
        self.state.counts.lock().command
    }
}

impl Placement for LeafPlacement {
    fn place(&self, pid: u32) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let (guest, name, state) = (self.guest_host_pid, self.name.clone(), Arc::clone(&self.state));
        let group = self.group;
        let placed = tokio::task::spawn_blocking(move || state.place(guest, pid, (group, &name)));
        Box::pin(async move {
            let placed = placed.await.map_err(|error| error.to_string())?;
            placed.map_err(|error| {
                match &error {
                    // The process ended with its container, for example, and never runs.
                    CgroupError::NoSuchProcess => tracing::debug!("a command was gone before it could be put into its cgroup"),
                    error => tracing::error!(error = %refusal::chain(error), "a command could not be put into its cgroup"),
                }
                error.to_string()
            })
        })
    }

    fn beside(&self, pid: u32) {
        self.state.keep.lock().drain = Some(pid);
    }

    fn finish(&self, forced: bool) -> Pin<Box<dyn Future<Output = KillEvidence> + Send + '_>> {
        Box::pin(async move {
            // Without a leaf the command never ran.
            let Some(leaf) = self.state.leaf.lock().take() else { return nothing_left() };
            let (evidence, leaf) = if leaf.pids().is_ok_and(|pids| pids.is_empty()) {
                // This is the common case. It is handled in this thread for the same reason as in `begin`.
                self.state.count(&leaf, 0);
                (nothing_left(), Some(leaf))
            } else {
                let (state, guest) = (Arc::clone(&self.state), self.guest_host_pid);
                let ended = tokio::task::spawn_blocking(move || {
                    if !forced && let Some(evidence) = state.keep_left(&leaf, guest) {
                        state.count(&leaf, 0);
                        return (evidence, leaf);
                    }
                    let (evidence, peak_memory_bytes) = end(&leaf, &state.cgroup, forced);
                    state.count(&leaf, peak_memory_bytes);
                    (evidence, leaf)
                });
                ended.await.map_or_else(|_| (nothing_left(), None), |(evidence, leaf)| (evidence, Some(leaf)))
            };
            // The removal of an empty cgroup waits for other cgroup work of the kernel. The call does not need to wait for it.
            tokio::task::spawn_blocking(move || drop(leaf));
            evidence
        })
    }
}

impl State {
    fn place(&self, guest_host_pid: u32, pid: u32, (group, name): (Group, &str)) -> Result<(), CgroupError> {
        let process = self.cgroup.process(guest_host_pid, pid)?;
        let mut slot = self.leaf.lock();
        // A leaf exists already if the process that waited in it is gone and another one takes its place.
        let mut leaf = match slot.take() {
            Some(leaf) => leaf,
            None => self.cgroup.leaf(group, name)?,
        };
        if let Err(error) = process.goes_first() {
            tracing::debug!(error = %refusal::chain(&error), "a command is killed no sooner than its guest");
        }
        leaf.add(&process)?;
        self.begin(Some(&leaf));
        *slot = Some(leaf);
        Ok(())
    }

    /// Keeps the processes that the command left running, if it may leave any, and returns the evidence.
    fn keep_left(&self, leaf: &Leaf, guest_host_pid: u32) -> Option<KillEvidence> {
        let (name, drain) = {
            let mut keep = self.keep.lock();
            (keep.name.take()?, keep.drain.take())
        };
        let mut left = Left::take(&self.cgroup, leaf, &name).inspect_err(left::not_kept).ok()??;
        if let Some(pid) = drain
            && let Err(error) = self.cgroup.process(guest_host_pid, pid).and_then(|reader| left.add(&reader))
        {
            tracing::debug!(error = %refusal::chain(&error), "the reader of a command's pipes was not moved");
        }
        let running = left.processes;
        self.keep.lock().left = Some(left);
        Some(KillEvidence { running, ..nothing_left() })
    }

    /// Resets the counts, so that earlier usage is not attributed to the command.
    fn begin(&self, leaf: Option<&Leaf>) {
        let before = leaf.and_then(Leaf::cpu_time).unwrap_or_default();
        *self.counts.lock() = Counts { events: self.cgroup.limit_events(), before, ..Counts::default() };
    }

    /// Stores the usage since [`Self::begin`]. `peak_memory_bytes` is that of the largest process that was still there.
    fn count(&self, leaf: &Leaf, peak_memory_bytes: u64) {
        let mut counts = self.counts.lock();
        let cpu_time = leaf.cpu_time().map(|time| time.saturating_sub(counts.before));
        counts.command = Metered { cpu_time, peak_memory_bytes };
        counts.events = self.cgroup.limit_events().since(counts.events);
    }
}

#[cfg(test)]
mod tests {
    use super::unique;

    #[test]
    fn a_leaf_name_is_valid_and_never_reused() {
        let names: std::collections::BTreeSet<_> = (0..1_000).map(|_| unique("mcp-server-1")).collect();
        assert_eq!(names.len(), 1_000);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(names.iter().all(|name| name.len() <= 32 && name.chars().all(plain)), "{names:?}");
    }
}
