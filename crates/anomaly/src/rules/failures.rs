//! `repeated_failures`: `threshold` of the agent's last `of` calls failed, all within the window (seed 001: eight of ten).

use std::collections::VecDeque;

use policy::AnomalySetting;

use super::{Evidence, MAX_SEQUENCES, Rule, within};
use crate::seen::{Ending, Moment, Seen};

#[derive(Debug, Default)]
pub(super) struct Failures(VecDeque<(Moment, u64, bool)>);

/// Returns true if the call counts for the agent. Faults of the daemon and refusals by a rate limit do not count.
pub(super) fn counts(seen: &Seen) -> bool {
    seen.ended().is_some_and(|ended| !matches!(ended.ending, Ending::Excused | Ending::OverLimit))
}

impl Rule for Failures {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let failed = seen.ended().is_some_and(|ended| !ended.succeeded());
        self.0.push_back((seen.at, seen.sequence, failed));
        let of = usize::try_from(setting.of.unwrap_or(setting.threshold)).unwrap_or(usize::MAX);
        while self.0.len() > of {
            self.0.pop_front();
        }
        let failures: Vec<u64> = self
            .0
            .iter()
            .filter(|(at, _, failed)| *failed && within(*at, seen.at, setting))
            .map(|(_, sequence, _)| *sequence)
            .collect();
        (failed && failures.len() as u64 >= setting.threshold).then(|| Evidence {
            count: failures.len() as u64,
            sequences: failures[failures.len().saturating_sub(MAX_SEQUENCES)..].to_vec(),
        })
    }
}
