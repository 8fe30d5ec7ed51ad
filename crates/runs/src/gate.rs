//! Admission of runs to the node, as another crate decides it.

use ::tenants::Amounts;
use refusal::Refusal;

/// Admission to the node.
pub trait Gate: Send + Sync {
    /// Refuses each run while the node makes none.
    fn check_open(&self) -> Result<(), Refusal>;

    /// Returns true if the use of all runs matters.
    fn counts(&self) -> bool;

    /// Admits a run of a tenant with limits `wanted` beside runs with limits `used`, which is nothing if it does not matter.
    ///
    /// The caller holds the lock of the runs until the new run is among them.
    fn admit(&self, tenant: &str, wanted: Amounts, used: Amounts) -> Result<(), Refusal>;
}
