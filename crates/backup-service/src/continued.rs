//! The first records of a daemon that continues from a backup.

#![expect(clippy::disallowed_methods, reason = "the state directory itself")]

use std::io;
use std::path::Path;

use audit::{Event, Kind};
use audit_service::AuditLog;
use operations::{Evidence, Reason, ToolFailure};
use runs::record::{Record, State};
use serde_json::json;
use store::{Store, StoreError, Trees};

const FAILURE: &str = "the daemon continues from a backup, and the run's container did not come along";

/// Reason why a daemon cannot continue from a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ContinueError {
    #[error("the description of the restored backup cannot be read or removed")]
    Description(#[source] io::Error),
    #[error("the restored store cannot be used")]
    Store(#[from] StoreError),
    #[error("the audit log cannot be written")]
    Log,
}

/// Returns true if a restore into this state directory was not finished, so that no daemon can start with it.
pub fn is_unfinished(state_dir: &Path) -> bool {
    state_dir.join(backup::UNFINISHED).exists()
}

/// Records that this daemon continues from a backup, if it does, and ends what did not come along.
///
/// Comes before all other records of the daemon, and before it asks the engine about a run. A daemon that is killed meanwhile does it
/// again.
pub async fn continue_from_backup(
    state_dir: &Path,
    store: &Store,
    audit: &AuditLog,
) -> Result<(), ContinueError> {
    let Some(restored) = backup::continued(state_dir).map_err(ContinueError::Description)? else {
        return Ok(());
    };
    let living = living(store)?;
    let gone = |trees: Trees, name: &'static str| {
        let directory = state_dir.join(name);
        // Ids are names without a slash: the store has checked them before.
        store.with(move |store| store.retain_trees(trees, |id| directory.join(id).is_dir()))
    };
    let (workspaces, bases, checkpoints) = (
        gone(Trees::Workspaces, "workspaces").await?,
        gone(Trees::Bases, "bases").await?,
        gone(Trees::Checkpoints, "checkpoints").await?,
    );
    tracing::warn!(
        backup = restored.backup_id,
        runs = living.len(),
        workspaces,
        bases,
        checkpoints,
        "continuing from a backup"
    );
    let details = json!({
        "backup_id": restored.backup_id,
        "made_at_ms": restored.made_at_ms,
        "restored_at_ms": restored.restored_at_ms,
        "release": restored.release,
        "last_sequence": restored.last_sequence,
        "last_hash": restored.last_hash,
        "lost": { "runs": living.len(), "workspaces": workspaces, "bases": bases, "checkpoints": checkpoints },
    });
    record(audit, Event::new(Kind::StateRestored).details(details)).await?;
    for run in living {
        end(run, store, audit).await?;
    }
    backup::settled(state_dir).map_err(ContinueError::Description)
}

fn living(store: &Store) -> Result<Vec<Record>, StoreError> {
    let mut runs = runs::stored::all(store)?;
    runs.retain(|run| !run.state.has_ended());
    Ok(runs)
}

/// Ends a run on record. Its container is left alone, because it may be another daemon's.
async fn end(mut run: Record, store: &Store, audit: &AuditLog) -> Result<(), ContinueError> {
    let lost = ToolFailure::new(Reason::RunLost, FAILURE);
    run.enter(State::Failed, Some(lost.shown_by(Evidence::new("daemon.event", "restored from a backup"))));
    run.holds.clear();
    let text = serde_json::to_string(&run).map_err(StoreError::from)?;
    let mut details = json!({ "state": run.state.as_str() });
    run.explain_failure(&mut details);
    record(audit, run.event(details)).await?;
    let id = run.id;
    Ok(store.with(move |store| store.update_run(id, &text, true)).await?)
}

async fn record(audit: &AuditLog, event: Event) -> Result<(), ContinueError> {
    audit.record(event).await.map(drop).map_err(|_| ContinueError::Log)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use identity::BaseId;
    use store::OutcomeBounds;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn live_runs_end_on_record_after_the_record_of_the_restore_and_only_once() {
        let place = tempfile::tempdir().unwrap();
        let state = place.path();
        let store = Store::open(&state.join("store.db"), OutcomeBounds::WIDE).unwrap();
        let (log, _, _) = AuditLog::open(&state.join("audit"), audit_service::Settings::default()).unwrap();
        let run = runs::testing::record();
        runs::stored::insert(&store, &run, None, &BTreeMap::new()).unwrap();
        let (there, gone) = (BaseId::new(), BaseId::new());
        store.insert_base(there, "{}").unwrap();
        store.insert_base(gone, "{}").unwrap();
        std::fs::create_dir_all(state.join("bases").join(there.to_string())).unwrap();
        let restored = json!({
            "backup_id": "b", "made_at_ms": 1, "restored_at_ms": 2, "release": "0.1.0", "last_sequence": 9, "last_hash": "h",
        });
        std::fs::write(state.join("restored.json"), restored.to_string()).unwrap();

        continue_from_backup(state, &store, &log).await.unwrap();
        continue_from_backup(state, &store, &log).await.unwrap();

        let mut follow = log.read_after(0, false);
        let mut events = Vec::new();
        while let Some(lines) = follow.next().await.unwrap() {
            events.extend(lines.iter().map(|line| line.record.event.clone()));
        }
        let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [Kind::StateRestored, Kind::RunState]);
        let details = events[0].details.as_ref().unwrap();
        assert_eq!(details["lost"], json!({ "runs": 1, "workspaces": 0, "bases": 1, "checkpoints": 0 }));
        let stored = runs::stored::all(&store).unwrap();
        assert_eq!((stored[0].state, stored[0].failure.as_deref()), (State::Failed, Some(FAILURE)));
        assert_eq!(store.bases().unwrap().len(), 1);
    }
}
