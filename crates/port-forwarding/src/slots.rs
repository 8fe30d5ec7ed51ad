//! Limits the connections of a run and of the daemon.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use identity::RunId;
use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use tokio::time::Instant;

/// Most open connections of one run.
const OF_RUN: usize = 64;
/// Most open connections of all runs.
const OF_DAEMON: usize = 256;
/// Most new connections of one run within [`WINDOW`]. Each is two records of the log.
const NEW: u32 = 1_000;
const WINDOW: Duration = Duration::from_secs(60);

/// The open connections. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct Slots(Arc<Mutex<HashMap<RunId, Counts>>>);

#[derive(Debug)]
struct Counts {
    open: usize,
    /// Beginning of the window.
    since: Instant,
    /// Connections in the window.
    new: u32,
}

/// Slot of a connection. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    run: RunId,
}

impl Slots {
    /// Takes a slot for a connection to `run`.
    pub(super) fn enter(&self, run: RunId) -> Result<Slot, Refusal> {
        let refused = |message: String| Err(Refusal::new(Reason::Overloaded, message));
        let mut all = self.0.lock();
        all.retain(|_, counts| counts.open > 0 || counts.since.elapsed() < WINDOW);
        if all.values().map(|counts| counts.open).sum::<usize>() >= OF_DAEMON {
            return refused(format!(
                "{OF_DAEMON} connections to runs are open, which is the daemon's limit: try again later"
            ));
        }
        let counts = all.entry(run).or_insert_with(|| Counts { open: 0, since: Instant::now(), new: 0 });
        if counts.open >= OF_RUN {
            return refused(format!(
                "{OF_RUN} connections to this run are open, which is the limit: close one"
            ));
        }
        if counts.since.elapsed() >= WINDOW {
            (counts.since, counts.new) = (Instant::now(), 0);
        }
        if counts.new >= NEW {
            return refused(format!(
                "{NEW} connections to this run began within a minute: try again in a moment"
            ));
        }
        counts.open += 1;
        counts.new += 1;
        drop(all);
        Ok(Slot { slots: self.clone(), run })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(counts) = self.slots.0.lock().get_mut(&self.run) {
            counts.open -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use identity::RunId;
    use operations::Reason;

    use super::{NEW, OF_DAEMON, OF_RUN, Slots, WINDOW};

    #[tokio::test(start_paused = true)]
    async fn connections_of_a_run_and_of_the_daemon_are_limited_and_slots_come_back() {
        let slots = Slots::default();
        let run = RunId::new();
        let mut open: Vec<_> = (0..OF_RUN).map(|_| slots.enter(run).unwrap()).collect();
        assert_eq!(slots.enter(run).unwrap_err().reason, Reason::Overloaded);
        open.pop();
        open.push(slots.enter(run).unwrap());
        for _ in 1..OF_DAEMON / OF_RUN {
            let other = RunId::new();
            open.extend((0..OF_RUN).map(|_| slots.enter(other).unwrap()));
        }
        assert_eq!(slots.enter(RunId::new()).unwrap_err().reason, Reason::Overloaded);
        open.clear();
        assert!(slots.enter(RunId::new()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn new_connections_of_a_run_are_limited_by_the_minute() {
        let slots = Slots::default();
        let run = RunId::new();
        for _ in 0..NEW {
            drop(slots.enter(run).unwrap());
        }
        assert_eq!(slots.enter(run).unwrap_err().reason, Reason::Overloaded);
        assert!(slots.enter(RunId::new()).is_ok(), "another run is not limited by it");
        tokio::time::advance(WINDOW + Duration::from_secs(1)).await;
        assert!(slots.enter(run).is_ok());
        assert_eq!(slots.0.lock().len(), 1, "runs without connections are forgotten");
    }
}
