//! `spike`: more calls in the window than `threshold`, and more than `factor` times the agent's usual number (seed 001: 50 in five
//! minutes).
//!
//! Time is divided into slots, 300 a window, and into consecutive windows. The calls of the sliding window are the sum of its
//! slots. The baseline is the mean of the last twelve whole windows in which the agent was active. An agent with fewer than three
//! such windows has a baseline of `threshold` calls.

use std::collections::VecDeque;

use policy::AnomalySetting;

use super::{Evidence, MAX_SEQUENCES, Rule, millis};
use crate::seen::Seen;

/// Number of windows in the baseline.
pub(super) const BASELINE_WINDOWS: u64 = 12;
/// Fewest active windows that make a baseline.
pub(super) const KNOWN: u64 = 3;
/// Number of slots in a window.
pub(super) const SLOTS: u64 = 300;

#[derive(Debug, Default)]
pub(super) struct Spike {
    slots: VecDeque<(u64, u64)>,
    windows: VecDeque<(u64, u64)>,
    last: VecDeque<u64>,
}

/// Returns the length of a slot, milliseconds.
pub(super) fn slot(setting: &AnomalySetting) -> u64 {
    (millis(setting) / SLOTS).max(1)
}

/// Returns true if `count` calls are a spike, with a baseline of `sum` calls in `active` windows.
pub(super) fn is_spike(count: u64, sum: u64, active: u64, setting: &AnomalySetting) -> bool {
    let (sum, active) = if active < KNOWN { (setting.threshold, 1) } else { (sum, active) };
    let factor = setting.factor.unwrap_or(1);
    count > setting.threshold && count.saturating_mul(active) > sum.saturating_mul(factor)
}

fn add(counts: &mut VecDeque<(u64, u64)>, index: u64) {
    match counts.back_mut() {
        Some((last, count)) if *last == index => *count += 1,
        _ => counts.push_back((index, 1)),
    }
}

impl Rule for Spike {
    fn observe(&mut self, seen: &Seen, setting: &AnomalySetting) -> Option<Evidence> {
        let (now, window) = (seen.at / slot(setting), seen.at / millis(setting).max(1));
        add(&mut self.slots, now);
        while self.slots.front().is_some_and(|(slot, _)| slot + SLOTS <= now) {
            self.slots.pop_front();
        }
        add(&mut self.windows, window);
        while self.windows.front().is_some_and(|(past, _)| past + BASELINE_WINDOWS < window) {
            self.windows.pop_front();
        }
        self.last.push_back(seen.sequence);
        if self.last.len() > MAX_SEQUENCES {
            self.last.pop_front();
        }
        let count: u64 = self.slots.iter().map(|(_, count)| count).sum();
        let past = self.windows.iter().filter(|(past, _)| *past < window);
        let (sum, active) = past.fold((0, 0), |(sum, active), (_, count)| (sum + count, active + 1));
        is_spike(count, sum, active, setting)
            .then(|| Evidence { count, sequences: self.last.iter().copied().collect() })
    }
}
