//! `egress_volume`: so many MiB were sent by connections of a run that ended within the window.
//!
//! Like the calls of `spike`, bytes are counted by slots: the sliding window is the sum of its slots.

use std::collections::VecDeque;

use policy::AnomalySetting;

use super::{Evidence, MAX_SEQUENCES, Rule, spike};
use crate::seen::{Moment, Seen, What};

const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Volume {
    /// Slots, and the bytes that were sent in each.
    slots: VecDeque<(u64, u64)>,
    /// The last records that count, and their slots.
    last: VecDeque<(u64, u64)>,
}

/// Returns true if a slot is in the window that ends with slot `now`.
pub(super) fn is_in_window(slot: u64, now: u64) -> bool {
    slot + spike::SLOTS > now
}

/// Returns true if so many bytes are too many.
pub(super) fn is_much(bytes: u64, setting: &AnomalySetting) -> bool {
    bytes >= setting.threshold.saturating_mul(MIB)
}

/// Returns the slot of a moment.
pub(super) fn slot(at: Moment, setting: &AnomalySetting) -> u64 {
    at / spike::slot(setting)
}

impl Rule for Volume {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let What::Sent(bytes) = seen.what else { return None };
        let now = slot(seen.at, setting);
        match self.slots.back_mut() {
            Some((slot, sum)) if *slot == now => *sum = sum.saturating_add(bytes),
            _ => self.slots.push_back((now, bytes)),
        }
        self.slots.retain(|(slot, _)| is_in_window(*slot, now));
        self.last.push_back((now, seen.sequence));
        self.last.retain(|(slot, _)| is_in_window(*slot, now));
        if self.last.len() > MAX_SEQUENCES {
            self.last.pop_front();
        }
        let sum = self.slots.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        is_much(sum, setting).then(|| Evidence {
            count: sum / MIB,
            sequences: self.last.iter().map(|(_, sequence)| *sequence).collect(),
        })
    }
}
