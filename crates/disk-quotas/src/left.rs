//! Space of runs that have ended, and of the workspaces that they left.
//!
//! ```text
//!  run ends, or files change ──expect──► at least so much ──measured──► so much
//!                                              ▲                           │
//!                                              └───────────expect──────────┘
//! ```
//!
//! An amount is in force from the end of the run on, before anything was measured. So no run is free of charge for its tenant because it has
//! just ended. A measure that began before the files changed once more is discarded.

use std::collections::{BTreeMap, BTreeSet};

use identity::RunId;
use parking_lot::Mutex;
use tokio::sync::Notify;
use wire::v1;

use crate::account::Found;

/// Names one expectation. A measure counts for the latest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected(u64);

/// Space by run. A workspace has the id of the run for which it was made.
#[derive(Debug, Default)]
pub struct Left {
    table: Mutex<Table>,
    /// Notified when there is something to measure.
    pub expects: Notify,
    /// Notified when a run was measured.
    is_measured: Notify,
}

#[derive(Debug, Default)]
struct Table {
    found: BTreeMap<RunId, (Found, Expected)>,
    /// Runs whose amount is not that of a measure.
    unmeasured: BTreeSet<RunId>,
    expectations: u64,
}

impl Left {
    /// Notes that the files of a run have changed, or may have: they take what is known of them, and at least `bytes`, until they are measured.
    pub fn expect(&self, run: RunId, bytes: u64) {
        let mut table = self.table.lock();
        table.expectations += 1;
        let now = Expected(table.expectations);
        let (found, expected) = table.found.entry(run).or_insert((Found::default(), now));
        found.amount.bytes = found.amount.bytes.max(bytes);
        *expected = now;
        table.unmeasured.insert(run);
        drop(table);
        self.expects.notify_one();
    }

    /// Returns the runs that have to be measured.
    pub fn unmeasured(&self) -> BTreeSet<RunId> {
        self.table.lock().unmeasured.clone()
    }

    /// Returns the expectation that a measure of this run has to meet. `None`: it has not to be measured.
    pub fn expected(&self, run: RunId) -> Option<Expected> {
        let table = self.table.lock();
        let (_, expected) = table.found.get(&run).filter(|_| table.unmeasured.contains(&run))?;
        Some(*expected)
    }

    /// Waits until these runs are measured. The caller bounds the time.
    pub async fn are_measured(&self, runs: &BTreeSet<RunId>) {
        loop {
            let measured = self.is_measured.notified();
            if self.table.lock().unmeasured.is_disjoint(runs) {
                return;
            }
            measured.await;
        }
    }

    /// Takes a measure of files as they were expected to be. `None`: the run and its workspace are gone.
    pub fn measured(&self, run: RunId, as_of: Expected, found: Option<Found>) {
        let mut table = self.table.lock();
        if table.found.get(&run).is_none_or(|(_, expected)| *expected != as_of) {
            return;
        }
        table.unmeasured.remove(&run);
        match found {
            Some(found) => drop(table.found.insert(run, (found, as_of))),
            None => drop(table.found.remove(&run)),
        }
        self.is_measured.notify_waiters();
    }

    /// Returns the space of each run, measured or expected.
    pub fn all(&self) -> Vec<(RunId, Found)> {
        self.table.lock().found.iter().map(|(run, (found, _))| (*run, *found)).collect()
    }

    /// Returns the space of a run if it was measured.
    pub fn of(&self, run: RunId) -> Option<v1::DiskUse> {
        let table = self.table.lock();
        let (found, _) = table.found.get(&run).filter(|_| !table.unmeasured.contains(&run))?;
        Some(found.to_wire())
    }
}

#[cfg(test)]
mod tests {
    use containers::Amount;

    use super::*;

    fn found(bytes: u64) -> Found {
        Found { amount: Amount { bytes, files: 1 }, ..Found::default() }
    }

    fn bytes(left: &Left) -> Vec<u64> {
        left.all().iter().map(|(_, found)| found.amount.bytes).collect()
    }

    #[test]
    fn a_run_takes_what_is_expected_until_it_is_measured() {
        let (left, run) = (Left::default(), RunId::new());
        left.expect(run, 100);
        assert_eq!((bytes(&left), left.of(run)), (vec![100], None));
        let as_of = left.expected(run).unwrap();
        left.measured(run, as_of, Some(found(7)));
        assert_eq!((bytes(&left), left.of(run).unwrap().used_bytes), (vec![7], 7));
        assert_eq!((left.unmeasured(), left.expected(run)), (BTreeSet::new(), None));
        // Files that were removed still take their earlier space until they are measured.
        left.expect(run, 0);
        assert_eq!((bytes(&left), left.of(run)), (vec![7], None));
    }

    #[test]
    fn a_measure_that_began_before_a_change_is_discarded() {
        let (left, run) = (Left::default(), RunId::new());
        left.expect(run, 5);
        let before = left.expected(run).unwrap();
        left.expect(run, 50);
        left.measured(run, before, Some(found(1)));
        assert_eq!(bytes(&left), [50]);
        let now = left.expected(run).unwrap();
        left.measured(run, now, None);
        assert!(left.all().is_empty() && left.unmeasured().is_empty());
        // A measure of a run that is gone brings nothing back.
        left.measured(run, now, Some(found(1)));
        assert!(left.all().is_empty());
    }

    #[tokio::test]
    async fn a_caller_waits_until_its_runs_are_measured_and_for_no_others() {
        let left = std::sync::Arc::new(Left::default());
        let (own, other) = (BTreeSet::from([RunId::new(), RunId::new()]), RunId::new());
        left.are_measured(&own).await;
        for run in own.iter().chain([&other]) {
            left.expect(*run, 1);
        }
        left.expects.notified().await;
        let (all, waited) = (left.clone(), own.clone());
        let waits = tokio::spawn(async move { all.are_measured(&waited).await });
        for run in &own {
            tokio::task::yield_now().await;
            assert!(!waits.is_finished());
            left.measured(*run, left.expected(*run).unwrap(), Some(found(1)));
        }
        waits.await.unwrap();
        assert_eq!(left.unmeasured(), BTreeSet::from([other]));
    }
}
