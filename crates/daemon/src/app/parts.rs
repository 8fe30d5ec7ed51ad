//! The parts of a daemon that its services and tasks share. Each is given those that it uses.

use std::sync::Arc;

use bases::Bases;
use calls::{Calls, Control, Life, Records, Workers};
use checkpoints::Checkpoints;
use store::Store;

pub(crate) struct Parts {
    pub(crate) control: Control,
    pub(crate) workers: Workers,
    pub(crate) records: Records,
    pub(crate) bases: Arc<Bases>,
    pub(crate) checkpoints: Arc<Checkpoints>,
    pub(crate) life: Life,
    pub(crate) store: Store,
}

impl Parts {
    /// Returns the maker of calls.
    pub(super) fn calls(&self) -> Calls {
        Calls::new(self.control.clone(), self.workers.clone(), self.records.clone(), self.life.clone())
    }
}
