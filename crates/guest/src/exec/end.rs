//! Ends the processes that a command left, without a cgroup.
//!
//! This is less certain than a cgroup: a process that forks faster than `/proc` can be read may escape for a while. Repeats signals until a
//! complete scan finds no process. A process that is not known to be gone counts as left.

use std::collections::HashSet;
use std::time::Duration;

use operations::{KillEvidence, KillMethod};
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::children::{look, signal};
use crate::exec::micros;
use crate::lane::Lane;

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(5);
/// Time for which SIGKILL is repeated.
const KILLING: Duration = Duration::from_secs(1);
/// First pause between two looks, while there are new processes, and the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LAST_PAUSE: Duration = Duration::from_millis(50);

/// Ends `command` and everything that it started.
///
/// If the command ended by itself, the processes that it left are killed at once. Otherwise all are asked to end first.
pub(super) async fn end(lane: &Lane, command: i32, forced: bool) -> KillEvidence {
    let began = Instant::now();
    let mut ending = Ending { lane, command, seen: HashSet::new() };
    let asked = if forced { ending.until(GRACE, Phase::Ask).await } else { usize::MAX };
    let left = if asked > 0 { ending.until(KILLING, Phase::Kill).await } else { 0 };
    let count = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let (ended, left) = (count(ending.seen.len().saturating_sub(left)), count(left));
    if ending.seen.is_empty() && left == 0 {
        return KillEvidence { method: KillMethod::NoneNeeded.into(), ..KillEvidence::default() };
    }
    KillEvidence {
        ended,
        left,
        method: KillMethod::Descendants.into(),
        took_us: micros(began.elapsed()),
        running: 0,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// SIGTERM, once for each process. SIGCONT follows, because a stopped process does not handle a signal.
    Ask,
    /// SIGKILL, each time that a process is seen.
    Kill,
}

struct Ending<'l> {
    lane: &'l Lane,
    command: i32,
    /// All processes that ever had to be ended.
    seen: HashSet<i32>,
}

impl Ending<'_> {
    /// Sends signals until no process is left or the time is up. Returns how many are left, or may be.
    async fn until(&mut self, limit: Duration, phase: Phase) -> usize {
        let deadline = Instant::now() + limit;
        let mut pause = FIRST_PAUSE;
        loop {
            let (doomed, is_whole) = self.look().await;
            if doomed.is_empty() && is_whole {
                return 0;
            }
            let mut is_chase = !is_whole;
            for pid in &doomed {
                let new = self.seen.insert(*pid);
                is_chase |= new;
                match phase {
                    Phase::Ask if new => {
                        signal(*pid, Signal::TERM);
                        signal(*pid, Signal::CONT);
                    }
                    Phase::Ask => {}
                    Phase::Kill => signal(*pid, Signal::KILL),
                }
            }
            if Instant::now() >= deadline {
                return doomed.len().max(1);
            }
            sleep(pause).await;
            pause = if is_chase { FIRST_PAUSE } else { (pause * 2).min(LAST_PAUSE) };
        }
    }

    /// Returns the processes that have to end, and whether the scan was complete.
    ///
    /// Reading `/proc` takes time if there are many processes. The guest's main thread continues meanwhile.
    async fn look(&self) -> (Vec<i32>, bool) {
        let before = self.lane.children.live();
        let look = self.lane.threads.run(look::look).await.unwrap_or_default();
        (self.lane.children.doomed(&look.processes, self.command, &before), look.is_whole)
    }
}
