//! The parts of a daemon that its services and tasks share. Each is given those that it uses.

use std::sync::Arc;

use bases::Bases;
use calls::{Calls, Control, Life, Records, Workers};
use checkpoints::Checkpoints;
use node::Node;
use store::Store;

pub(super) struct Parts {
    pub(super) control: Control,
    pub(super) workers: Workers,
    pub(super) records: Records,
    pub(super) bases: Arc<Bases>,
    pub(super) checkpoints: Arc<Checkpoints>,
    pub(super) node: Arc<Node>,
    pub(super) life: Life,
    pub(super) store: Store,
}

impl Parts {
    /// Returns the maker of calls.
    pub(super) fn calls(&self) -> Calls {
        Calls::new(self.control.clone(), self.workers.clone(), self.records.clone(), self.life.clone())
    }
}
