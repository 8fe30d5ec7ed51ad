//! Limits the number of open sessions of a run, and the length of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use identity::RunId;
use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;

/// Limits for a session, from the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest time from the beginning of a session to its end, at most a day.
    /// Longest time without input and output.
    /// Maximum size of the recording, bytes.
    /// Maximum number of open sessions of one run, at most 8.
    pub max_length: Duration,
    pub idle_timeout: Duration,
    pub max_recording: u64,
    pub per_run: usize,
}

/// The open sessions. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    pub(super) limits: Arc<Limits>,
    open: Arc<Mutex<HashMap<RunId, usize>>>,
}

/// Slot of a session in its run. Dropping it frees the slot.
#[derive(Debug)]
pub(super) struct SessionSlot {
    sessions: Sessions,
    run: RunId,
}

impl Sessions {
    pub fn new(limits: Limits) -> Self {
        Self { limits: Arc::new(limits), open: Arc::default() }
    }

    /// Takes a slot in `run`.
    pub(super) fn enter(&self, run: RunId) -> Result<SessionSlot, Refusal> {
        let mut open = self.open.lock();
        let count = open.entry(run).or_default();
        if *count >= self.limits.per_run {
            return Err(Refusal::new(
                Reason::Overloaded,
                format!("{count} sessions are open in this run, which is the limit: end one first"),
            ));
        }
        *count += 1;
        drop(open);
        Ok(SessionSlot { sessions: self.clone(), run })
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut open = self.sessions.open.lock();
        if let Some(count) = open.get_mut(&self.run) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use identity::RunId;
    use operations::Reason;

    use super::{Limits, Sessions};

    #[test]
    fn each_run_has_separate_slots_and_gets_them_back() {
        let limits = Limits {
            max_length: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(1),
            max_recording: 1,
            per_run: 2,
        };
        let sessions = Sessions::new(limits);
        let (run, other) = (RunId::new(), RunId::new());
        let first = sessions.enter(run).unwrap();
        let _second = sessions.enter(run).unwrap();
        assert_eq!(sessions.enter(run).unwrap_err().reason, Reason::Overloaded);
        drop(sessions.enter(other).unwrap());
        drop(first);
        let _third = sessions.enter(run).unwrap();
        assert_eq!(sessions.open.lock().len(), 1);
    }
}
