//! Measures the guest while no call uses it.

use std::time::Duration;

use harness::memory;

use crate::stage::Stage;
use crate::usage;

/// Longer than an idle thread of the agent stays.
const PATIENCE: Duration = Duration::from_secs(15);

/// The agent's size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    /// Resident memory, bytes.
    pub(crate) resident: u64,
    /// Its program file, bytes.
    pub(crate) binary: u64,
    pub(crate) threads: usize,
}

/// The agent as it is now.
pub(crate) fn look(stage: &Stage) -> Footprint {
    let pid = usage::agent(stage);
    let binary = std::fs::metadata(format!("/proc/{pid}/exe")).unwrap().len();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count();
    Footprint { resident: memory(pid, "VmRSS") * 1024, binary, threads }
}

/// The agent when it has no more threads than at first, or keeps them although it is idle.
pub(crate) async fn idle(stage: &Stage, first: Footprint) -> Footprint {
    let gone = async {
        // A thread that ends tells nobody.
        while look(stage).threads > first.threads {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, gone).await;
    look(stage)
}
