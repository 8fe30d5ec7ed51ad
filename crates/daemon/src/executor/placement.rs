//! A cgroup of its own for each command, so that everything that it starts can be ended for sure.
//!
//! The agent starts the command stopped and names its pid; it is moved into a leaf cgroup before its first instruction,
//! so that nothing it forks is ever outside. Process groups do not do this: `setsid` leaves them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use containers::{ContainerCgroup, KillMethod, Leaf, LimitEvents};
use ops::KillEvidence;
use worker::client::Placement;

use super::metered::Metered;

/// Between SIGTERM and SIGKILL when a command is ended before its time.
const GRACE: Duration = Duration::from_secs(5);
/// Until everything has to be gone after SIGKILL.
const WITHIN: Duration = Duration::from_secs(1);
/// Between looks whether a terminated command has gone.
const LOOK: Duration = Duration::from_millis(20);

/// The leaf of one call.
pub(super) struct LeafPlacement {
    cgroup: ContainerCgroup,
    agent_host_pid: u32,
    name: String,
    leaf: Arc<Mutex<Option<Leaf>>>,
    /// Before the command ran the container's own counts; afterwards what came to them.
    events: Arc<Mutex<LimitEvents>>,
    used: Arc<Mutex<Used>>,
}

/// What the kernel has counted in a leaf.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    /// Processor time of what waited there, before the command began.
    before: Duration,
    /// Of the command alone. Known when it has been finished.
    command: Metered,
}

impl LeafPlacement {
    /// For the command of a call or a session, or for whatever has this name.
    pub(super) fn new(cgroup: ContainerCgroup, agent_host_pid: u32, name: String) -> Self {
        let (leaf, events, used) = (Arc::default(), Arc::default(), Arc::default());
        Self { cgroup, agent_host_pid, name, leaf, events, used }
    }

    /// What was placed a while ago begins to run now: only what comes to the counts from here on is its doing.
    pub(super) async fn begin(&self) {
        let (cgroup, slot) = (self.cgroup.clone(), self.leaf.clone());
        let (events, used) = (self.events.clone(), self.used.clone());
        let counted = tokio::task::spawn_blocking(move || {
            *events.lock().unwrap_or_else(PoisonError::into_inner) = cgroup.limit_events();
            if let Some(leaf) = &*slot.lock().unwrap_or_else(PoisonError::into_inner) {
                begin(leaf, &used);
            }
        });
        let _ = counted.await;
    }

    /// The limits that the container met while the command ran. Known when it has been finished.
    pub(super) fn events(&self) -> LimitEvents {
        *self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the command used. Known when it has been finished.
    pub(super) fn metered(&self) -> Metered {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).command
    }
}

impl Placement for LeafPlacement {
    fn place(&self, pid: u32) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>> {
        let (cgroup, agent, name, slot) =
            (self.cgroup.clone(), self.agent_host_pid, self.name.clone(), self.leaf.clone());
        let (events, used) = (self.events.clone(), self.used.clone());
        let placed = tokio::task::spawn_blocking(move || {
            let process = cgroup.process(agent, pid)?;
            let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
            // There is one when a process that waited here is gone, and another takes its place.
            let mut leaf = match slot.take() {
                Some(leaf) => leaf,
                None => cgroup.leaf(&name)?,
            };
            if let Err(error) = process.goes_first() {
                tracing::debug!(error = %crate::status::chain(&error), "a command is killed no sooner than its agent");
            }
            *events.lock().unwrap_or_else(PoisonError::into_inner) = cgroup.limit_events();
            leaf.add(&process)?;
            begin(&leaf, &used);
            *slot = Some(leaf);
            Ok::<_, containers::CgroupError>(())
        });
        Box::pin(async move {
            let placed = placed.await.map_err(|error| error.to_string())?;
            placed.map_err(|error| {
                tracing::error!(error = %crate::status::chain(&error), "a command could not be put into its cgroup");
                error.to_string()
            })
        })
    }

    fn finish(&self, forced: bool) -> Pin<Box<dyn Future<Output = KillEvidence> + Send + '_>> {
        let (cgroup, slot) = (self.cgroup.clone(), self.leaf.clone());
        let (events, used) = (self.events.clone(), self.used.clone());
        let ended = tokio::task::spawn_blocking(move || {
            let leaf = slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
            let (evidence, peak_memory_bytes) = end(&leaf, forced);
            let until_now = leaf.cpu_time();
            let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
            let cpu_time = until_now.map(|time| time.saturating_sub(used.before));
            used.command = Metered { cpu_time, peak_memory_bytes };
            let mut events = events.lock().unwrap_or_else(PoisonError::into_inner);
            *events = cgroup.limit_events().since(*events);
            // Removing an empty cgroup waits for whatever else the kernel does with cgroups; the call need not.
            tokio::task::spawn_blocking(move || drop(leaf));
            Some(evidence)
        });
        // Without a leaf the command never ran.
        let nothing = || KillEvidence { method: "none-needed".to_owned(), ..Default::default() };
        Box::pin(async move { ended.await.ok().flatten().unwrap_or_else(nothing) })
    }
}

/// What was used until now is not the command's.
fn begin(leaf: &Leaf, used: &Mutex<Used>) {
    let before = leaf.cpu_time().unwrap_or_default();
    *used.lock().unwrap_or_else(PoisonError::into_inner) = Used { before, command: Metered::default() };
}

/// Ends what is left. Says also the peak memory of the largest process that was still there, bytes; 0 without one.
fn end(leaf: &Leaf, forced: bool) -> (KillEvidence, u64) {
    let mut asked = 0;
    let mut peak = leaf.peak_memory();
    if forced {
        asked = leaf.terminate_all().unwrap_or(0);
        let deadline = Instant::now() + GRACE;
        // What stands still does not hear.
        while !leaf.stands_still()
            && Instant::now() < deadline
            && leaf.pids().is_ok_and(|pids| !pids.is_empty())
        {
            std::thread::sleep(LOOK);
        }
        // It may have grown meanwhile.
        peak = peak.max(leaf.peak_memory());
    }
    let evidence = match leaf.kill_all(WITHIN) {
        Ok(evidence) => KillEvidence {
            ended: evidence.ended.max(asked),
            left: evidence.left,
            method: match evidence.how {
                _ if evidence.ended.max(asked) == 0 => "none-needed",
                KillMethod::CgroupKill => "cgroup-v2-kill",
                KillMethod::Freezer => "cgroup-v1-freezer",
            }
            .to_owned(),
        },
        Err(error) => {
            tracing::error!(error = %crate::status::chain(&error), "a command's cgroup could not be emptied");
            let left = leaf.pids().map_or(u32::MAX, |pids| u32::try_from(pids.len()).unwrap_or(u32::MAX));
            KillEvidence { ended: asked, left, method: "failed".to_owned() }
        }
    };
    (evidence, peak)
}
