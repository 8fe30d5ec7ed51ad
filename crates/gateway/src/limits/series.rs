//! The calls of one sliding window: a log in which neighbours are merged.
//!
//! A call counts from the moment when it is admitted until it is older than the window. Calls within a [`GRAINS`]th of
//! the window of each other share one entry, which stops counting when its *last* call is older than the window. So in
//! any stretch of time as long as the window there are never more calls than the limit, and a call counts at most a
//! [`GRAINS`]th of the window longer than it has to. A window takes at most [`GRAINS`] + 2 entries of 16 bytes,
//! whatever its limit. The time at which one more call fits is known to the millisecond.
//!
//! The alternatives: a fixed window lets twice the limit through around its edge. GCRA keeps one number, but also lets
//! up to twice the limit through in a window (a full bucket, and the calls that it regains meanwhile). A log of every
//! call is exact, but only the limit bounds it.

use std::collections::VecDeque;

use policy::{Limit, Span};

/// Number of parts of a window. The calls of one part share an entry.
pub(super) const GRAINS: u64 = 32;

/// Milliseconds on the clock of [`super::Moment`].
type Millis = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grain {
    first: Millis,
    /// Time from the first to the last call.
    length: u32,
    count: u32,
}

impl Grain {
    fn last(&self) -> Millis {
        self.first + u64::from(self.length)
    }
}

/// The calls of one window, oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Series {
    grains: VecDeque<Grain>,
    count: u32,
}

impl Series {
    /// Removes the calls that are older than the window.
    pub(super) fn forget(&mut self, span: Span, now: Millis) {
        while let Some(oldest) = self.grains.front().filter(|oldest| oldest.last() + span.millis() <= now) {
            self.count = self.count.saturating_sub(oldest.count);
            self.grains.pop_front();
        }
    }

    /// Returns the number of calls that count.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Counts one more call. Time does not go back: a call before the last one counts as of the last one.
    pub(super) fn add(&mut self, span: Span, at: Millis) {
        self.count = self.count.saturating_add(1);
        if let Some(newest) = self.grains.back_mut() {
            let length = at.max(newest.last()) - newest.first;
            if length < span.millis() / GRAINS && newest.count < u32::MAX {
                newest.length = u32::try_from(length).unwrap_or(u32::MAX);
                newest.count += 1;
                return;
            }
        }
        let first = self.grains.back().map_or(at, |newest| at.max(newest.last()));
        self.grains.push_back(Grain { first, length: 0, count: 1 });
    }

    /// Returns the time when one more call fits under `limit`, which may be lower than before. `None`
    /// means now.
    pub(super) fn room_at(&self, span: Span, limit: Limit) -> Option<Millis> {
        let limit = limit.calls()?;
        let mut left = self.count;
        let mut grains = self.grains.iter();
        let mut room = None;
        while left >= limit {
            let oldest = grains.next()?;
            left = left.saturating_sub(oldest.count);
            room = Some(oldest.last() + span.millis());
        }
        room
    }

    /// Returns the time when no call will count. `None` if none counts now.
    pub(super) fn empty_at(&self, span: Span) -> Option<Millis> {
        self.grains.back().map(|newest| newest.last() + span.millis())
    }

    /// Returns the first moment, last moment and number of calls of each entry.
    pub(super) fn grains(&self) -> impl Iterator<Item = (Millis, Millis, u32)> {
        self.grains.iter().map(|grain| (grain.first, grain.last(), grain.count))
    }

    /// Makes a series from the entries of [`Self::grains`], in any order and of any number.
    pub(super) fn restore(span: Span, mut grains: Vec<(Millis, Millis, u32)>) -> Self {
        grains.sort_unstable();
        let mut series = Self::default();
        // More than twice the possible number is invalid. The newest entries matter most, so they are kept.
        let entries = usize::try_from(2 * GRAINS).unwrap_or(usize::MAX);
        let surplus = grains.len().saturating_sub(entries);
        for (first, last, count) in grains.into_iter().skip(surplus).filter(|grain| grain.2 > 0) {
            let first = series.grains.back().map_or(first, |newest| first.max(newest.last()));
            let longest = span.millis() / GRAINS;
            let length = last.saturating_sub(first).min(longest);
            let grain = Grain {
                first: first.max(last.saturating_sub(longest)),
                length: u32::try_from(length).unwrap_or(u32::MAX),
                count,
            };
            series.count = series.count.saturating_add(count);
            series.grains.push_back(grain);
        }
        series
    }
}
