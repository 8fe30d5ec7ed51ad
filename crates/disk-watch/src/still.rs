//! Freezes commands while their run is measured, and kills those that do not freeze.
//!
//! ```text
//!  Still::begin ─► a thread freezes them, and again while they are not frozen
//!                    ├─ one does not, and its files grow: a single system call that writes on ─► strike
//!                    └─ Still::end ─► the thread is over ─► the run's task: as the holds say
//! ```
//!
//! A freeze takes effect between two system calls. One call may write two gigabytes, and only SIGKILL ends it early.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use containers::{Commands, Group, open_files};
use identity::RunId;
use runs::Run;
use tokio::task::JoinHandle;

use super::{DiskWatch, measuring};

/// Time between checks of commands that have to freeze.
const AGAIN: Duration = Duration::from_millis(5);
/// Time in which a command freezes unless it is in a long system call.
const USUALLY: Duration = Duration::from_millis(20);
/// Bytes that open files may grow by after that time.
const GROWTH: u64 = 64 << 20;

/// Frozen commands of a run. They stay frozen until [`Still::end`].
pub(super) struct Still {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Still {
    /// Begins to freeze the commands of a run. Returns `None` if they are in no cgroup that can be frozen.
    pub(super) fn begin(watch: &DiskWatch, id: RunId, run: &Arc<Run>) -> Option<Self> {
        let place = measuring::unnamed(watch, id, run);
        if place.commands.is_empty() {
            return None;
        }
        tracing::debug!(run = %id, "a run's commands are frozen while it is measured");
        run.stands_still.store(true, Ordering::SeqCst);
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, run) = (is_over.clone(), run.clone());
        let thread = tokio::task::spawn_blocking(move || {
            let places = place.places();
            let places: Vec<&str> = places.iter().map(String::as_str).collect();
            let (began, mut before) = (Instant::now(), None);
            while !over.load(Ordering::SeqCst) && !run.ended.is_cancelled() {
                if !are_frozen(&place.commands) && began.elapsed() >= USUALLY {
                    let now = open_files(&place.pids(), &places).bytes;
                    if now >= before.get_or_insert(now).saturating_add(GROWTH) {
                        run.disk.commands_end();
                        kill(&place.commands);
                        run.end_commands();
                        return;
                    }
                }
                sleep(AGAIN);
            }
        });
        Some(Self { is_over, thread })
    }

    /// Lets the commands continue, unless something else holds them.
    pub(super) fn end(self, watch: &DiskWatch, run: Arc<Run>) {
        watch.runs.tasks.spawn(async move {
            self.is_over.store(true, Ordering::SeqCst);
            // The thread freezes no command after this.
            let _ = self.thread.await;
            run.stands_still.store(false, Ordering::SeqCst);
            run.settle_commands().await;
        });
    }
}

/// Freezes each command again if it is not frozen, and returns true if all are frozen.
fn are_frozen(commands: &[Commands]) -> bool {
    // A command that cannot be frozen is measured while it runs. Each command is frozen, whatever the others do.
    let frozen: Vec<_> = commands.iter().map(|commands| commands.freeze(Duration::ZERO)).collect();
    frozen.into_iter().all(|is_frozen| is_frozen.unwrap_or(true))
}

fn kill(commands: &[Commands]) {
    for commands in commands {
        if let Err(error) = commands.strike() {
            tracing::error!(error = %refusal::chain(&error), "commands were not killed at once");
        }
    }
}

/// Kills all commands of a run at once. The run's task then ends them in order.
pub(super) async fn strike(run: &Run) {
    let Ok(lanes) = run.lanes_for_review() else { return };
    let commands: Vec<_> = Group::ALL.into_iter().filter_map(|group| lanes.commands(group)).collect();
    let _ = tokio::task::spawn_blocking(move || kill(&commands)).await;
}
