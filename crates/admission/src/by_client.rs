//! Counts events by client, for records that are made at most once a minute: each client apart, and those beyond a number together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Occurrences;

/// Time after which a client without an event is forgotten.
const FORGET: Duration = Duration::from_secs(60);
/// Most clients and kinds that are counted apart, and most further clients of which the number is known.
const APART: usize = 1_024;

/// A kind and a client. `None` is for all clients that are not counted apart.
type Key = (&'static str, Option<String>);

/// Events that are not on record yet.
#[derive(Debug, Default)]
pub struct OccurrencesByClient(Mutex<BTreeMap<Key, Counted>>);

/// Events of one key that are not on record yet.
#[derive(Debug)]
struct Counted {
    last: Instant,
    occurrences: Occurrences,
    /// Clients that are not counted apart.
    together: BTreeSet<String>,
}

/// Events for one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Number of events.
    pub count: u64,
    /// Number of their clients, 1,024 also for more. A record of several must name none of them.
    pub clients: usize,
}

impl OccurrencesByClient {
    /// Adds an event. Returns the events since the last record of this kind and client, this one included, if it is time for another record.
    pub fn add(&self, kind: &'static str, client: &str, now: Instant) -> Option<Due> {
        let mut all = self.0.lock();
        let mut key = (kind, Some(client.to_owned()));
        if all.len() >= APART && !all.contains_key(&key) {
            all.retain(|_, counted| now.duration_since(counted.last) < FORGET);
            if all.len() >= APART {
                key.1 = None;
            }
        }
        let is_apart = key.1.is_some();
        let new = || Counted { last: now, occurrences: Occurrences::new(), together: BTreeSet::new() };
        let counted = all.entry(key).or_insert_with(new);
        counted.last = now;
        if !is_apart && counted.together.len() < APART {
            counted.together.insert(client.to_owned());
        }
        let count = counted.occurrences.add(now)?;
        Some(Due { count, clients: std::mem::take(&mut counted.together).len().max(1) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "OVERLOADED";

    fn of_one(count: u64) -> Due {
        Due { count, clients: 1 }
    }

    #[test]
    fn a_flood_is_one_record_a_minute_with_all_of_it() {
        let (events, now) = (OccurrencesByClient::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let add = |client: &str, seconds| events.add(KIND, client, at(seconds));
        assert_eq!(add("a", 0), Some(of_one(1)));
        for _ in 0..200 {
            assert_eq!(add("a", 1), None);
        }
        assert_eq!(add("b", 1), Some(of_one(1)), "another client");
        assert_eq!(events.add("NODE_DRAINED", "a", at(1)), Some(of_one(1)), "another kind");
        assert_eq!(add("a", 60), Some(of_one(201)));
        for number in 0..3 * APART {
            add(&format!("p{number}"), 200 + 60 * number as u64);
        }
        assert!(events.0.lock().len() <= APART);
    }

    #[test]
    fn clients_beyond_the_bound_share_a_record() {
        let (events, now) = (OccurrencesByClient::default(), Instant::now());
        let records =
            (0..2 * APART).filter(|number| events.add(KIND, &format!("p{number}"), now).is_some()).count();
        assert_eq!((records, events.0.lock().len()), (APART + 1, APART + 1));
        let new = events.add(KIND, "new", now + FORGET);
        assert_eq!(new, Some(of_one(1)), "the others are forgotten");
    }

    #[test]
    fn a_shared_record_has_the_number_of_its_clients() {
        let (events, now) = (OccurrencesByClient::default(), Instant::now());
        let add = |client: &str, seconds| events.add(KIND, client, now + Duration::from_secs(seconds));
        let keep_all_apart = |seconds| {
            for number in 0..APART {
                add(&format!("p{number}"), seconds);
            }
        };
        keep_all_apart(0);
        assert_eq!(add("a", 1), Some(of_one(1)), "it is the first");
        for client in ["a", "b", "b", "c", "b"] {
            assert_eq!(add(client, 2), None);
        }
        keep_all_apart(50);
        assert_eq!(add("d", 61), Some(Due { count: 6, clients: 4 }));
        for number in 0..2 * APART {
            assert_eq!(add(&format!("q{number}"), 62), None);
        }
        keep_all_apart(100);
        let due = add("d", 121);
        assert_eq!(due, Some(Due { count: 2 * APART as u64 + 1, clients: APART }), "the number is bounded");
        keep_all_apart(150);
        assert_eq!(add("e", 150), None);
        let due = add("d", 181);
        assert_eq!(due, Some(Due { count: 2, clients: 2 }), "clients of an earlier record do not count");
    }
}
