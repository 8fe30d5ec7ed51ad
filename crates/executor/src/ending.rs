//! Ends the processes in a command's leaf. If the command is ended early, they are asked first and then killed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use containers::{ContainerCgroup, Leaf};
use operations::{KillEvidence, KillMethod};
use refusal::chain;
use timestamp::micros;

/// Time between SIGTERM and SIGKILL when a command is ended early.
const GRACE: Duration = Duration::from_secs(5);
/// Time after SIGKILL until at least one more process has to be gone.
const WITHIN: Duration = Duration::from_secs(1);
/// Interval between two checks whether a terminated command has gone.
const LOOK: Duration = Duration::from_millis(20);
/// Processes that a command may start while it ends, such as those of a shell's trap. A command that starts more is not ending.
const LAST_FORKS: usize = 64;

/// Returns the evidence of a leaf in which no process had to be ended.
pub(crate) fn nothing_left() -> KillEvidence {
    KillEvidence { method: KillMethod::NoneNeeded.into(), ..KillEvidence::default() }
}

/// Ends the remaining processes.
///
/// It also returns the peak memory in bytes of the largest one that was still there, or 0 if there was none.
pub(crate) fn end(leaf: &Leaf, container: &ContainerCgroup, forced: bool) -> (KillEvidence, u64) {
    let began = Instant::now();
    let mut asked = 0;
    let mut peak = leaf.peak_memory();
    if forced {
        asked = ask(leaf, container);
        // The peak may have grown meanwhile.
        peak = peak.max(leaf.peak_memory());
    }
    let killed = leaf.kill_all(WITHIN);
    let took_us = micros(began.elapsed());
    let evidence = match killed {
        Ok(evidence) if evidence.ended.max(asked) == 0 && evidence.left == 0 => nothing_left(),
        Ok(evidence) => KillEvidence {
            ended: evidence.ended.max(asked),
            left: evidence.left,
            method: match evidence.how {
                containers::KillMethod::CgroupKill => KillMethod::CgroupV2Kill,
                containers::KillMethod::Freezer => KillMethod::CgroupV1Freezer,
            }
            .into(),
            took_us,
            running: 0,
        },
        Err(error) => {
            tracing::error!(error = %chain(&error), "a command's cgroup could not be emptied");
            let left = leaf.pids().map_or(u32::MAX, |pids| u32::try_from(pids.len()).unwrap_or(u32::MAX));
            KillEvidence { ended: asked, left, method: KillMethod::Failed.into(), took_us, running: 0 }
        }
    };
    (evidence, peak)
}

/// Asks all processes to end, waits for it, and returns how many were asked. A command that keeps starting processes gets no time.
fn ask(leaf: &Leaf, container: &ContainerCgroup) -> u32 {
    let refused = container.limit_events().forks_refused;
    let asked: BTreeSet<u32> = leaf.terminate_all().unwrap_or_default().into_iter().collect();
    let deadline = Instant::now() + GRACE;
    let mut others = BTreeSet::new();
    // Frozen processes do not handle the signal.
    while !leaf.stands_still() && Instant::now() < deadline {
        match leaf.pids() {
            Ok(pids) if !pids.is_empty() => {
                others.extend(pids.into_iter().filter(|pid| !asked.contains(pid)));
            }
            _ => break,
        }
        if others.len() > LAST_FORKS || container.limit_events().forks_refused > refused {
            break;
        }
        std::thread::sleep(LOOK);
    }
    u32::try_from(asked.len()).unwrap_or(u32::MAX)
}
