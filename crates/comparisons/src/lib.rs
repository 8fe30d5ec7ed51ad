#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod changes;
mod conflicts;
mod figures;
mod sections;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::RandomState;
use std::sync::Arc;
use std::time::{Duration, Instant};

use admission::Turns;
use audit_service::{AuditLog, Index};
use identity::{Principal, RunId};
use operations::Reason;
use refusal::Refusal;
use runs::Runs;
use runs::record::Record;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_blocking};
use wire::v1;

use changes::Changes;
use conflicts::{Conflict, Paths};
use figures::Figures;

/// Most runs of a comparison.
const MOST_RUNS: usize = 100;
/// Comparisons that are made at the same time. Each holds the paths of its runs in memory.
const AT_ONCE: usize = 2;
/// Runs of one comparison that are looked at together.
const LOOKS: usize = 4;
/// Runs of all comparisons whose records are read together, so that queries of other clients have a turn.
const QUERIES: usize = 2;
/// Time after which no further run is looked at.
const LONGEST: Duration = Duration::from_secs(120);
/// Most bytes of the diff of one run.
const MOST_DIFF: u32 = 1024 * 1024;
/// Bytes that the shown changes of all runs may have together.
const CHANGES_BYTES: usize = 3 * 512 * 1024;
/// Most conflicts of an answer.
const MOST_CONFLICTS: usize = 1_000;
/// Bytes that the conflicts of an answer may have together.
const CONFLICTS_BYTES: usize = 1024 * 1024;
/// Bytes of the id of a run in an answer.
const ID_BYTES: usize = 38;

/// Compares runs.
pub struct Comparisons {
    runs: Arc<Runs>,
    audit: Arc<AuditLog>,
    index: Arc<Index>,
    turns: Turns,
    queries: Arc<Semaphore>,
}

/// Resources for the looks at the runs of one comparison.
struct Look {
    runs: Arc<Runs>,
    index: Arc<Index>,
    looks: Semaphore,
    queries: Arc<Semaphore>,
    states: RandomState,
    until: Instant,
    /// Bytes for the shown changes of one run.
    room: usize,
}

/// Result of the look at one run.
struct Looked {
    number: usize,
    record: Record,
    changes: Result<Changes, Refusal>,
    figures: Figures,
}

impl Comparisons {
    pub fn new(runs: Arc<Runs>, audit: Arc<AuditLog>, index: Arc<Index>) -> Self {
        let queries = Arc::new(Semaphore::new(QUERIES));
        Self { runs, audit, index, turns: Turns::new(AT_ONCE), queries }
    }

    /// Compares runs that `principal` may use.
    pub async fn compare(
        &self,
        request: &v1::CompareRunsRequest,
        principal: &Principal,
    ) -> Result<v1::CompareRunsResponse, Refusal> {
        let ids = distinct(&request.run_ids)?;
        let records: Vec<Record> =
            ids.iter().map(|id| self.runs.of(*id, principal)).collect::<Result<_, _>>()?;
        let Some(_turn) = self.turns.wait(&principal.name).await else {
            return Err(Refusal::new(
                Reason::Overloaded,
                "too many runs are being compared; try again later",
            ));
        };
        // The records of calls that were answered are in the index then.
        self.audit.settle().await;
        let look = Arc::new(Look {
            runs: self.runs.clone(),
            index: self.index.clone(),
            looks: Semaphore::new(LOOKS),
            queries: self.queries.clone(),
            states: RandomState::new(),
            until: Instant::now() + LONGEST,
            room: CHANGES_BYTES / records.len(),
        });
        let mut looks = JoinSet::new();
        for (number, record) in records.into_iter().enumerate() {
            looks.spawn(look.clone().take(number, record));
        }
        let (mut runs, mut paths) = (BTreeMap::new(), Paths::default());
        while let Some(looked) = looks.join_next().await {
            let looked = looked.map_err(|error| Refusal::internal("comparing runs", &error))??;
            let number = looked.number;
            runs.insert(number, looked.into_wire(&mut paths));
        }
        let found = spawn_blocking(move || paths.conflicts(MOST_CONFLICTS)).await;
        let (found, more) = found.map_err(|error| Refusal::internal("comparing runs", &error))?;
        let (conflicts, is_cut) = to_wire(found, &ids);
        Ok(v1::CompareRunsResponse {
            runs: runs.into_values().collect(),
            conflicts,
            truncated: more || is_cut,
        })
    }
}

impl Look {
    async fn take(self: Arc<Self>, number: usize, record: Record) -> Result<Looked, Refusal> {
        let _look = self.looks.acquire().await;
        let diff = if Instant::now() < self.until {
            self.runs.diff(record.id, MOST_DIFF).await
        } else {
            let message = format!(
                "the comparison took longer than {} s: compare fewer runs at once",
                LONGEST.as_secs()
            );
            Err(Refusal::new(Reason::Overloaded, message))
        };
        let changes = diff.map(|diff| Changes::of(diff, number, self.room, &self.states));
        let _query = self.queries.acquire().await;
        let figures = Figures::read(&self.index, record.id, self.until).await?;
        Ok(Looked { number, record, changes, figures })
    }
}

impl Looked {
    /// Adds the changed paths to those of the other runs, and returns the rest.
    fn into_wire(self, paths: &mut Paths) -> v1::ComparedRun {
        let Self { record, changes, figures, .. } = self;
        let (changes, unavailable) = match changes {
            Ok(changes) => (changes, String::new()),
            Err(refusal) => (Changes::default(), refusal.message),
        };
        if changes.is_cut {
            paths.cut();
        }
        for (path, changed) in changes.paths {
            paths.add(path, changed);
        }
        v1::ComparedRun {
            run: Some(record.to_wire()),
            changes: changes.shown,
            total: changes.total,
            lines_added: changes.added,
            lines_removed: changes.removed,
            lines_incomplete: changes.is_uncounted,
            unavailable,
            calls: figures.calls,
            refused: figures.refused,
            approvals: figures.approvals,
            cpu_us: figures.cpu_us,
        }
    }
}

/// Parses the ids of the runs. Refuses too few, too many, and one that is named twice.
fn distinct(ids: &[String]) -> Result<Vec<RunId>, Refusal> {
    if !(2..=MOST_RUNS).contains(&ids.len()) {
        return Err(Refusal::invalid("run_ids", format!("must be 2 to {MOST_RUNS} runs")));
    }
    let ids = ids.iter().map(|id| RunId::parse(id)).collect::<Result<Vec<_>, _>>()?;
    let mut seen = BTreeSet::new();
    match ids.iter().find(|id| !seen.insert(**id)) {
        Some(twice) => Err(Refusal::invalid("run_ids", format!("name the run {twice} twice"))),
        None => Ok(ids),
    }
}

/// Returns the conflicts that fit an answer, and whether others did not.
fn to_wire(found: Vec<Conflict>, ids: &[RunId]) -> (Vec<v1::ComparedPath>, bool) {
    let (mut conflicts, mut bytes) = (Vec::with_capacity(found.len()), 0);
    for Conflict { path, runs } in found {
        bytes += path.len() + runs.len() * ID_BYTES;
        if bytes > CONFLICTS_BYTES {
            return (conflicts, true);
        }
        let run_ids = runs.iter().filter_map(|number| ids.get(*number)).map(RunId::to_string).collect();
        conflicts.push(v1::ComparedPath { path, run_ids });
    }
    (conflicts, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(count: usize) -> Vec<String> {
        (0..count).map(|_| RunId::new().to_string()).collect()
    }

    #[test]
    fn two_to_a_hundred_runs_are_compared_and_each_is_named_once() {
        for count in [2, MOST_RUNS] {
            let ids = ids(count);
            let parsed: Vec<_> = distinct(&ids).unwrap().iter().map(RunId::to_string).collect();
            assert_eq!(parsed, ids);
        }
        for count in [0, 1, MOST_RUNS + 1] {
            assert_eq!(distinct(&ids(count)).unwrap_err().reason, Reason::InvalidArgument);
        }
        let mut twice = ids(2);
        twice.push(twice[0].clone());
        let refused = distinct(&twice).unwrap_err();
        assert!(refused.message.contains(&twice[0]), "{}", refused.message);
        assert_eq!(distinct(&["x".to_owned(), "y".to_owned()]).unwrap_err().reason, Reason::NotFound);
    }

    #[test]
    fn conflicts_of_an_answer_are_bounded() {
        let ids: Vec<_> = (0..MOST_RUNS).map(|_| RunId::new()).collect();
        let conflict = |number: usize| Conflict { path: number.to_string(), runs: (0..MOST_RUNS).collect() };
        let (shown, is_cut) = to_wire((0..2).map(conflict).collect(), &ids);
        assert_eq!((shown.len(), is_cut), (2, false));
        assert_eq!(shown[1].run_ids[99], ids[99].to_string());
        let (shown, is_cut) = to_wire((0..MOST_CONFLICTS).map(conflict).collect(), &ids);
        assert!(is_cut && shown.len() < MOST_CONFLICTS && shown.len() > 200, "{}", shown.len());
    }
}
