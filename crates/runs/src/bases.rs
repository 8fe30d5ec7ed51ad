//! The bases on which runs can begin, as another crate keeps them.

use identity::{BaseId, Principal, RunId};
use refusal::Refusal;

/// The bases that exist.
pub trait Bases: Send + Sync {
    /// Notes that a run of `principal` begins on the base. Refuses one that does not exist for it.
    fn begin(&self, base: BaseId, principal: &Principal) -> Result<(), Refusal>;
}

/// Users of bases besides live runs and pending changes, as another crate keeps them.
pub trait BaseUsers: Send + Sync {
    /// Returns a run whose checkpoint needs the base.
    fn user_of(&self, base: BaseId) -> Option<RunId>;
}
