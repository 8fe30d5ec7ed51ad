//! `read_write_delete_burst`: a read, a write and a deletion in this order within five calls of a run, of any files (seed 001 looks
//! at the last five).

use std::collections::VecDeque;

use policy::AnomalySetting;

use super::tally::Tally;
use super::{Evidence, Rule, within};
use crate::seen::{Kind, Moment, Seen};

/// Number of calls that are considered together.
const CALLS: usize = 5;

#[derive(Debug, Default)]
pub(super) struct Burst {
    last: VecDeque<(Moment, Kind)>,
    bursts: Tally,
}

impl Rule for Burst {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let ended = seen.ended()?;
        self.last.push_back((seen.at, if ended.succeeded() { ended.kind } else { Kind::Other }));
        if self.last.len() > CALLS {
            self.last.pop_front();
        }
        let mut before =
            self.last.iter().filter(|(at, _)| within(*at, seen.at, setting)).map(|(_, kind)| *kind);
        let is_burst = ended.kind == Kind::Delete
            && ended.succeeded()
            && before.any(|kind| kind == Kind::Read)
            && before.any(|kind| kind == Kind::Change);
        if is_burst { self.bursts.count(seen.at, seen.sequence, setting) } else { None }
    }
}
