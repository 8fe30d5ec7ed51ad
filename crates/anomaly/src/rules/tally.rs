//! Counts events within a sliding window.

use std::collections::VecDeque;

use policy::AnomalySetting;

use super::{Evidence, MAX_SEQUENCES, within};
use crate::seen::Moment;

/// The last few events: at most as many as the threshold, since the exact number beyond it does not matter.
#[derive(Debug, Default)]
pub(super) struct Tally(VecDeque<(Moment, u64)>);

impl Tally {
    /// Counts one event. Returns evidence if there are enough.
    pub(super) fn count(&mut self, at: Moment, sequence: u64, setting: &AnomalySetting) -> Option<Evidence> {
        self.0.push_back((at, sequence));
        let most = usize::try_from(setting.threshold).unwrap_or(usize::MAX);
        while self.0.len() > most || self.0.front().is_some_and(|(first, _)| !within(*first, at, setting)) {
            self.0.pop_front();
        }
        (self.0.len() >= most).then(|| {
            let skip = self.0.len().saturating_sub(MAX_SEQUENCES);
            Evidence {
                count: self.0.len() as u64,
                sequences: self.0.iter().skip(skip).map(|(_, sequence)| *sequence).collect(),
            }
        })
    }
}
