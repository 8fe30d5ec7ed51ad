//! The numbers of the last day: how often consent was asked for, and how it was given.
//!
//! Reviewers who are asked too often consent without reading. The share that was approved unread shows it.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use timestamp::UnixMillis;
use wire::v1::Approval;
use wire::v1::approval::State;

/// Time between the first look and the consent that is too short for reading, milliseconds.
const UNREAD: u64 = 2_000;
/// The time that is counted, milliseconds.
const DAY: u64 = 24 * 60 * 60 * 1_000;
/// Most consents of a day that are counted.
const MOST: usize = 10_000;
/// Time for which the numbers of a viewer are kept: they are made of all approvals.
const FRESH: u64 = 15_000;
/// Most viewers whose numbers are kept.
const VIEWERS: usize = 256;

/// The numbers of the last 24 hours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) asked: usize,
    pub(crate) approved: usize,
    /// Approved here less than two seconds after they were first shown.
    pub(crate) unread: usize,
    pub(crate) denied: usize,
    pub(crate) expired: usize,
}

/// The consents that were given in this console since the start of the daemon, and the numbers of its viewers.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    unread: Mutex<VecDeque<UnixMillis>>,
    kept: Mutex<HashMap<String, (UnixMillis, Numbers)>>,
}

impl Readings {
    /// Counts a consent by the time that its reviewer had to read.
    pub(crate) fn approved(&self, shown_at: UnixMillis, now: UnixMillis) {
        if now.0.saturating_sub(shown_at.0) < UNREAD {
            let mut unread = self.unread.lock();
            if unread.len() >= MOST {
                unread.pop_front();
            }
            unread.push_back(now);
        }
    }

    /// Returns the numbers of a viewer if they are fresh.
    pub(crate) fn fresh(&self, viewer: &str, now: UnixMillis) -> Option<Numbers> {
        let kept = self.kept.lock();
        kept.get(viewer).filter(|(at, _)| now.0.saturating_sub(at.0) < FRESH).map(|(_, numbers)| *numbers)
    }

    /// Counts the approvals that a viewer sees.
    pub(crate) fn count(&self, viewer: &str, seen: &[Approval], now: UnixMillis) -> Numbers {
        let from = now.0.saturating_sub(DAY);
        let is_of_day =
            |at: Option<&wire::Timestamp>| at.and_then(UnixMillis::from_wire).is_some_and(|at| at.0 >= from);
        let mut numbers = Numbers::default();
        for approval in seen {
            numbers.asked += usize::from(is_of_day(approval.created_at.as_ref()));
            if !is_of_day(approval.decided_at.as_ref().or(approval.created_at.as_ref())) {
                continue;
            }
            match approval.state() {
                State::Approved => numbers.approved += 1,
                State::Denied => numbers.denied += 1,
                State::Expired => numbers.expired += 1,
                State::Pending | State::Cancelled | State::Unspecified => {}
            }
        }
        let mut unread = self.unread.lock();
        while unread.front().is_some_and(|at| at.0 < from) {
            unread.pop_front();
        }
        numbers.unread = unread.len();
        let mut kept = self.kept.lock();
        kept.retain(|_, (at, _)| now.0.saturating_sub(at.0) < FRESH);
        if kept.len() < VIEWERS {
            kept.insert(viewer.to_owned(), (now, numbers));
        }
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(10 * DAY);

    fn at(ago: u64) -> wire::Timestamp {
        UnixMillis(NOW.0 - ago).to_wire()
    }

    #[test]
    fn a_day_is_counted_by_outcome() {
        let one = |state: State, asked, decided| Approval {
            state: state.into(),
            created_at: Some(at(asked)),
            decided_at: decided,
            ..Default::default()
        };
        let seen = [
            one(State::Pending, 5, None),
            one(State::Approved, 10, Some(at(5))),
            one(State::Denied, DAY + 10, Some(at(5))),
            one(State::Expired, 10, Some(at(1))),
            one(State::Cancelled, 10, Some(at(1))),
            one(State::Approved, DAY + 20, Some(at(DAY + 10))),
        ];
        let readings = Readings::default();
        readings.approved(UnixMillis(NOW.0 - UNREAD - 1), UnixMillis(NOW.0 - 2));
        readings.approved(UnixMillis(NOW.0 - UNREAD), NOW);
        let expected = Numbers { asked: 4, approved: 1, unread: 1, denied: 1, expired: 1 };
        assert_eq!(readings.count("uid:1", &seen, NOW), expected);
        assert_eq!(readings.fresh("uid:1", NOW), Some(expected));
        assert_eq!(readings.fresh("uid:2", NOW), None);
        assert_eq!(readings.fresh("uid:1", UnixMillis(NOW.0 + FRESH)), None);
        assert_eq!(readings.count("uid:1", &[], UnixMillis(NOW.0 + 2 * DAY)), Numbers::default());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let readings = Readings::default();
        for _ in 0..2 * MOST {
            readings.approved(NOW, NOW);
        }
        for viewer in 0..2 * VIEWERS {
            readings.count(&viewer.to_string(), &[], NOW);
        }
        assert_eq!((readings.unread.lock().len(), readings.kept.lock().len()), (MOST, VIEWERS));
    }
}
