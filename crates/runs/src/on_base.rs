//! Runs that begin on trees that never change: bases and checkpoints. Other crates make, keep and delete the trees.
//!
//! A tree is needed by each live run on it, by each run that has ended and has changes, which are shown beside its files, and by each
//! checkpoint of a run on it. The lock of the live runs is held while a run begins and while a tree leaves its table. So no run begins on a tree that is being deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use identity::{BaseId, Principal, RunId};
use refusal::Refusal;

use crate::bases::Bases;
use crate::record::{Beneath, Spec, Workspace};
use crate::registry::Runs;

impl Runs {
    /// Sets the bases, once.
    pub fn set_bases(&self, bases: Arc<dyn Bases>) {
        let _ = self.bases.set(bases);
    }

    /// Calls `then` if no run needs the tree, and lets none begin on it meanwhile. Otherwise returns a run that needs it.
    pub fn if_unused<T>(&self, tree: impl Into<Beneath>, then: impl FnOnce() -> T) -> Result<T, RunId> {
        let tree = tree.into();
        let is_on = |spec: &Spec| spec.workspace.beneath() == Some(tree);
        let living = self.living();
        let user = living.iter().find(|(_, run)| is_on(&run.spec())).map(|(id, _)| *id);
        let user = user.or_else(|| {
            let ended = self.ended();
            let pending = ended.values().find(|run| run.has_pending_changes() && is_on(&run.spec));
            pending.map(|record| record.id)
        });
        let user = user.or_else(|| self.checkpoints.get().and_then(|checkpoints| checkpoints.user_of(tree)));
        user.map_or_else(|| Ok(then()), Err)
    }

    /// Returns the runs that need bases, newest first.
    pub fn users_of_bases(&self) -> BTreeMap<BaseId, Vec<RunId>> {
        let mut users = BTreeMap::<_, Vec<_>>::new();
        for record in self.list() {
            let Workspace::Base { base } = record.spec.workspace else { continue };
            if !record.state.has_ended() || record.has_pending_changes() {
                users.entry(base).or_default().push(record.id);
            }
        }
        users
    }

    pub(crate) fn begin_on(&self, base: BaseId, principal: &Principal) -> Result<(), Refusal> {
        self.bases.get().ok_or_else(|| no_such_base(base))?.begin(base, principal)
    }
}

/// Returns the refusal of a base that does not exist for a principal.
pub fn no_such_base(id: BaseId) -> Refusal {
    Refusal::absent("base", id, "there is no such base")
}
