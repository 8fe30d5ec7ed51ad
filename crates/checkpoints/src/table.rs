//! The checkpoints that exist. A checkpoint is in the table from the time that it is in the store until it is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use host_launch::TreeBounds;
use identity::{CheckpointId, Principal, RunId};
use operations::Reason;
use parking_lot::{Mutex, MutexGuard};
use refusal::{Refusal, chain};
use runs::Origin;
use runs::record::{Beneath, ForkedFrom, Record};
use store::{Store, StoreError};

use crate::record::{Checkpoint, Part, PartCopy};

pub(crate) struct Table {
    checkpoints: Mutex<BTreeMap<CheckpointId, Checkpoint>>,
    store: Store,
    /// Number of runs that are being made from each checkpoint.
    used: Arc<Mutex<BTreeMap<CheckpointId, usize>>>,
}

/// Keeps a checkpoint while runs are made from it or restored to it, or while a checkpoint that needs it is made.
pub(crate) struct Used(Arc<Mutex<BTreeMap<CheckpointId, usize>>>, CheckpointId);

impl Drop for Used {
    fn drop(&mut self) {
        let mut used = self.0.lock();
        let left = used.get(&self.1).map_or(0, |count| count - 1);
        if left == 0 {
            used.remove(&self.1);
        } else {
            used.insert(self.1, left);
        }
    }
}

impl Table {
    /// Reads the checkpoints of the store.
    pub(crate) fn open(store: Store) -> Result<Self, StoreError> {
        let read = |record: &String| -> Result<_, StoreError> {
            let checkpoint: Checkpoint = serde_json::from_str(record)?;
            Ok((checkpoint.id, checkpoint))
        };
        let checkpoints = store.checkpoints()?.iter().map(read).collect::<Result<_, _>>()?;
        Ok(Self { checkpoints: Mutex::new(checkpoints), store, used: Arc::default() })
    }

    /// Stores a new checkpoint, after which it exists.
    pub(crate) async fn insert(&self, checkpoint: Checkpoint) -> Result<(), Refusal> {
        let (id, text) = (checkpoint.id, serde_json::to_string(&checkpoint));
        let stored = self.store.with(move |store| store.insert_checkpoint(id, &text?)).await;
        stored.map_err(|error| Refusal::internal("keeping the checkpoint", &chain(&error)))?;
        self.lock().insert(id, checkpoint);
        Ok(())
    }

    /// Deletes the row of a checkpoint that is no longer in the table.
    pub(crate) async fn forget(&self, id: CheckpointId) -> Result<(), Refusal> {
        let deleted = self.store.with(move |store| store.delete_checkpoint(id)).await;
        deleted.map_err(|error| Refusal::internal("forgetting the checkpoint", &chain(&error)))
    }

    /// Returns a checkpoint that `principal` may use. Others do not exist for it.
    pub(crate) fn of(&self, id: CheckpointId, principal: &Principal) -> Result<Checkpoint, Refusal> {
        let found = self.lock().get(&id).cloned();
        found.filter(|found| principal.may_use(&found.principal)).ok_or_else(|| no_such_checkpoint(id))
    }

    /// Returns a checkpoint to which a run of `principal` can be restored: one of the run, or the one on which it began.
    ///
    /// A token that is limited to the run may use these as well, and no others exist for it.
    pub(crate) fn of_run(
        &self,
        id: CheckpointId,
        run: &Record,
        principal: &Principal,
    ) -> Result<Checkpoint, Refusal> {
        let began_on = run.spec.forked_from.as_ref().map(|from| from.checkpoint);
        let found = self.lock().get(&id).cloned();
        if let Some(found) = found.filter(|found| found.run == run.id || began_on == Some(id)) {
            return Ok(found);
        }
        self.of(id, principal)?;
        let message =
            "the checkpoint is of another run: restore one of this run, or the one on which it began";
        Err(Refusal::new(Reason::PreconditionFailed, message))
    }

    /// Keeps a checkpoint until the answer is dropped.
    pub(crate) fn keep(&self, id: CheckpointId) -> Result<Used, Refusal> {
        let checkpoints = self.lock();
        if !checkpoints.contains_key(&id) {
            return Err(no_such_checkpoint(id));
        }
        Ok(self.used(id))
    }

    /// Counts one more user of a checkpoint that is not in the table yet, or while the table is locked.
    pub(crate) fn used(&self, id: CheckpointId) -> Used {
        *self.used.lock().entry(id).or_default() += 1;
        Used(self.used.clone(), id)
    }

    /// Returns the checkpoint that was made for a request to fork.
    pub(crate) fn requested(&self, id: &str) -> Option<Checkpoint> {
        let is_it = |checkpoint: &&Checkpoint| checkpoint.requested.as_ref().is_some_and(|of| of.id == id);
        self.lock().values().find(is_it).cloned()
    }

    /// Returns true if a run is being made from the checkpoint. The table must be locked, so that none begins meanwhile.
    pub(crate) fn is_used(&self, id: CheckpointId) -> bool {
        self.used.lock().contains_key(&id)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<CheckpointId, Checkpoint>> {
        self.checkpoints.lock()
    }
}

impl runs::Checkpoints for Table {
    fn user_of(&self, tree: Beneath) -> Option<RunId> {
        let is_user = |checkpoint: &&Checkpoint| checkpoint.workspace.beneath() == Some(tree);
        self.lock().values().find(is_user).map(|checkpoint| checkpoint.run)
    }

    fn begin(&self, id: CheckpointId, principal: &Principal) -> Result<Origin, Refusal> {
        let checkpoints = self.lock();
        let found = checkpoints.get(&id).filter(|found| principal.may_use(&found.principal));
        let found = found.ok_or_else(|| no_such_checkpoint(id))?;
        if found.parts.iter().any(|part| part.part == Part::Repository) {
            let message = "workspace.checkpoint: its workspace is a linked work tree of git, whose repository no other run can have: \
                           create a run with workspace.clone";
            return Err(Refusal::new(Reason::PreconditionFailed, message));
        }
        let saved = found.parts.iter().find(|part| part.part == Part::Workspace);
        Ok(Origin {
            forked_from: ForkedFrom {
                checkpoint: id,
                run: found.run,
                image_id: found.image_id.clone(),
                since: Some(found.since()),
            },
            workspace: found.workspace.clone(),
            saved: saved.map_or(TreeBounds { bytes: 0, files: 0 }, PartCopy::size),
            kept: Box::new(self.used(id)),
        })
    }
}

pub(crate) fn no_such_checkpoint(id: CheckpointId) -> Refusal {
    Refusal::absent("checkpoint", id, "there is no such checkpoint")
}

#[cfg(test)]
pub(crate) mod tests {
    use identity::{BaseId, Roles, Scope};
    use runs::Checkpoints as _;
    use runs::record::Workspace;
    use store::OutcomeBounds;
    use timestamp::Timestamp;

    use super::*;

    pub(crate) fn checkpoint(run: RunId, created_at: Timestamp, bytes: u64) -> Checkpoint {
        let part = PartCopy { part: Part::Workspace, digest: "ab".repeat(32), bytes, files: 1, left_out: 0 };
        Checkpoint {
            id: CheckpointId::new(),
            run,
            principal: "uid:1000".to_owned(),
            made_by: "uid:1000".to_owned(),
            created_at,
            frozen_us: 1,
            label: String::new(),
            automatic: false,
            workspace: Workspace::Managed,
            image_id: "sha256:00".to_owned(),
            parts: vec![part],
            processes: Vec::new(),
            since: None,
            inherited: None,
            requested: None,
        }
    }

    fn principal(name: &str) -> Principal {
        let roles = Roles::none().with(identity::Role::Orchestrator);
        Principal { name: name.to_owned(), uid: 1000, gid: 1000, roles, ..Principal::anonymous() }
    }

    #[tokio::test]
    async fn a_checkpoint_exists_for_the_owner_of_its_run_alone_and_needs_its_base() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let table = Table::open(store.clone()).unwrap();
        let (run, base) = (RunId::new(), BaseId::new());
        let made = Checkpoint { workspace: Workspace::Base { base }, ..checkpoint(run, Timestamp::now(), 1) };
        table.insert(made.clone()).await.unwrap();
        let (own, other) = (principal("uid:1000"), principal("uid:1001"));
        assert_eq!(table.of(made.id, &own).unwrap(), made);
        assert_eq!(table.of(made.id, &other).unwrap_err().reason, Reason::NotFound);
        assert_eq!((table.user_of(base.into()), table.user_of(BaseId::new().into())), (Some(run), None));

        // It is kept while runs are made from it.
        assert_eq!(table.begin(made.id, &other).err().unwrap().reason, Reason::NotFound);
        let origins = [table.begin(made.id, &own).unwrap(), table.begin(made.id, &own).unwrap()];
        assert_eq!((origins[0].forked_from.run, &origins[1].workspace), (run, &made.workspace));
        assert_eq!(origins[0].saved, TreeBounds { bytes: 1, files: 1 });
        for origin in origins {
            assert!(table.is_used(made.id));
            drop(origin);
        }
        assert!(!table.is_used(made.id));

        let table = Table::open(store.clone()).unwrap();
        assert_eq!(table.of(made.id, &own).unwrap(), made);
        table.lock().remove(&made.id);
        table.forget(made.id).await.unwrap();
        assert!(Table::open(store).unwrap().lock().is_empty());
    }

    #[tokio::test]
    async fn a_run_goes_back_to_its_checkpoints_and_the_one_it_began_on_also_with_a_limited_token() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let table = Table::open(store).unwrap();
        let mut run = runs::testing::record();
        let own = checkpoint(run.id, Timestamp::now(), 1);
        let first = checkpoint(RunId::new(), Timestamp::now(), 1);
        let other = checkpoint(RunId::new(), Timestamp::now(), 1);
        run.spec.forked_from = Some(ForkedFrom {
            checkpoint: first.id,
            run: first.run,
            image_id: first.image_id.clone(),
            since: None,
        });
        for made in [&own, &first, &other] {
            table.insert(made.clone()).await.unwrap();
        }
        let owner = principal("uid:1000");
        let scope = Scope { runs: vec![run.id], profiles: Vec::new() };
        let limited = Principal { scope: Some(Arc::new(scope)), ..owner.clone() };
        for (caller, refused) in [(&owner, Reason::PreconditionFailed), (&limited, Reason::NotFound)] {
            for may in [&own, &first] {
                assert_eq!(&table.of_run(may.id, &run, caller).unwrap(), may);
            }
            assert_eq!(table.of_run(other.id, &run, caller).unwrap_err().reason, refused);
            let none = table.of_run(CheckpointId::new(), &run, caller).unwrap_err();
            assert_eq!(none.reason, Reason::NotFound);
        }
        assert!(table.of(own.id, &limited).is_err(), "it lists and deletes none");
    }

    #[tokio::test]
    async fn a_checkpoint_needs_the_one_that_is_beneath_its_run() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(&place.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let table = Table::open(store).unwrap();
        let (origin, fork) = (RunId::new(), RunId::new());
        let first = checkpoint(origin, Timestamp::now(), 1);
        let workspace = first.workspace.forked(first.id, origin);
        let second = Checkpoint { workspace, since: Some((7, 8)), ..checkpoint(fork, Timestamp::now(), 1) };
        table.insert(first.clone()).await.unwrap();
        assert_eq!(table.user_of(first.id.into()), None);
        table.insert(second.clone()).await.unwrap();
        assert_eq!((table.user_of(first.id.into()), table.user_of(second.id.into())), (Some(fork), None));

        // A fork of the fork is as old as the origin, on the first copy, and goes back to the origin's workspace.
        let begun = table.begin(second.id, &principal("uid:1000")).unwrap();
        assert_eq!(begun.forked_from.since, Some((7, 8)));
        let on = begun.workspace.forked(second.id, fork);
        assert_eq!(on, Workspace::Checkpoint { checkpoint: first.id, of: origin });
        assert_eq!(first.since(), (first.created_at.unix_seconds(), first.created_at.subsecond_nanos()));

        let kept = table.keep(first.id).unwrap();
        assert!(table.is_used(first.id));
        drop(kept);
        assert!(!table.is_used(first.id));
        assert!(table.keep(CheckpointId::new()).is_err());
    }
}
