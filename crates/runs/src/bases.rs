//! The bases on which runs can begin, as another crate keeps them.

use identity::{BaseId, Principal};
use refusal::Refusal;

/// The bases that exist.
pub trait Bases: Send + Sync {
    /// Notes that a run of `principal` begins on the base. Refuses one that does not exist for it.
    fn begin(&self, base: BaseId, principal: &Principal) -> Result<(), Refusal>;
}
