//! `egress_refusals`: lookups of, or connections to, a number of different hosts were refused within the window.

use std::collections::VecDeque;

use policy::AnomalySetting;

use super::{Evidence, MAX_SEQUENCES, Rule, within};
use crate::seen::{Mark, Moment, Seen, What};

/// The hosts that were refused last, each once: at most as many as the threshold.
#[derive(Debug, Default)]
pub(super) struct Different(VecDeque<(Moment, u64, Mark)>);

impl Rule for Different {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let What::Unreached(host) = seen.what else { return None };
        self.0.retain(|(at, _, known)| *known != host && within(*at, seen.at, setting));
        self.0.push_back((seen.at, seen.sequence, host));
        let most = usize::try_from(setting.threshold).unwrap_or(usize::MAX);
        while self.0.len() > most {
            self.0.pop_front();
        }
        (self.0.len() >= most).then(|| {
            let last = self.0.iter().skip(self.0.len().saturating_sub(MAX_SEQUENCES));
            Evidence {
                count: self.0.len() as u64,
                sequences: last.map(|(_, sequence, _)| *sequence).collect(),
            }
        })
    }
}
