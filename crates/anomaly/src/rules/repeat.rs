//! `loop`: the same operation with the same arguments, again and again.
//!
//! A test that runs again after an edit is work. So a change that succeeded resets the counts of all calls but those of changes:
//! two writes that undo each other are still counted.

use policy::AnomalySetting;

use super::tally::Tally;
use super::{Evidence, Rule};
use crate::recent::Recent;
use crate::seen::{Kind, Mark, Seen};

/// Most different calls of a run that are remembered.
const MAX_CALLS: usize = 128;

pub(super) struct Repeat(Recent<Mark, Repeated>);

struct Repeated {
    changes: bool,
    calls: Tally,
}

impl Default for Repeat {
    fn default() -> Self {
        Self(Recent::new(MAX_CALLS))
    }
}

pub(super) fn counts(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| ended.input.is_some())
}

/// Returns true if calls of this kind change the workspace.
pub(super) fn changes(kind: Kind) -> bool {
    matches!(kind, Kind::Change | Kind::Delete)
}

impl Rule for Repeat {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let ended = seen.ended()?;
        let input = ended.input?;
        if changes(ended.kind) && ended.succeeded() {
            self.0.retain(|_, repeated| repeated.changes);
        }
        let fresh = || Repeated { changes: changes(ended.kind), calls: Tally::default() };
        self.0.touch(&input, fresh).calls.count(seen.at, seen.sequence, setting)
    }
}
