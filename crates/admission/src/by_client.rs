//! Counts events by client, for records of which a minute has few: each client apart, and those beyond a number together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::Occurrences;

/// Time after which a client without an event is forgotten.
const WINDOW: Duration = Duration::from_secs(60);
/// Most clients and kinds that are counted apart, and most further clients of which the number is known.
const APART: usize = 1_024;

/// A kind and a client. `None` is for all clients that are not counted apart.
type Key<C> = (&'static str, Option<C>);

/// Events that are not on record yet.
#[derive(Debug)]
pub struct OccurrencesByClient<C> {
    /// Most records of one kind and client a minute.
    most: u32,
    counted: Mutex<BTreeMap<Key<C>, Counted<C>>>,
}

/// Events of one key.
#[derive(Debug)]
struct Counted<C> {
    last: Instant,
    occurrences: Occurrences,
    /// Clients that are not counted apart.
    together: BTreeSet<C>,
}

/// Events for one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// Number of events.
    pub count: u64,
    /// Number of their clients, 1,024 also for more. A record of several must name none of them.
    pub clients: usize,
}

impl<C: Clone + Ord> Default for OccurrencesByClient<C> {
    /// One record a minute.
    fn default() -> Self {
        Self::new(1)
    }
}

impl<C: Clone + Ord> OccurrencesByClient<C> {
    /// `most`: records a minute of one kind and client.
    pub fn new(most: u32) -> Self {
        Self { most, counted: Mutex::default() }
    }

    /// Adds an event. Returns the events since the last record of this kind and client, this one included, if it is time for another record.
    pub fn add(&self, kind: &'static str, client: &C, now: Instant) -> Option<Due> {
        let mut all = self.counted.lock();
        let mut key = (kind, Some(client.clone()));
        if all.len() >= APART && !all.contains_key(&key) {
            forget(&mut all, self.most, now);
            if all.len() >= APART {
                key.1 = None;
            }
        }
        let is_apart = key.1.is_some();
        let counted = all.entry(key).or_insert_with(|| Counted::new(self.most, now));
        if !is_apart {
            counted.share(client);
        }
        counted.add(now)
    }
}

/// Forgets the clients without an event for a while. Their events that are not on record count as those of clients beyond the number.
fn forget<C: Clone + Ord>(all: &mut BTreeMap<Key<C>, Counted<C>>, most: u32, now: Instant) {
    let mut left = Vec::new();
    all.retain(|(kind, client), counted| {
        let is_recent = now.duration_since(counted.last) < WINDOW;
        let count = counted.occurrences.count;
        if !is_recent && count > 0 {
            left.push((*kind, client.clone(), count, std::mem::take(&mut counted.together)));
        }
        is_recent
    });
    for (kind, client, count, together) in left {
        let shared = all.entry((kind, None)).or_insert_with(|| Counted::new(most, now));
        shared.occurrences.count += count;
        for client in together.iter().chain(&client) {
            shared.share(client);
        }
    }
}

impl<C: Clone + Ord> Counted<C> {
    fn new(most: u32, now: Instant) -> Self {
        Self { last: now, occurrences: Occurrences::with_lines(most), together: BTreeSet::new() }
    }

    fn share(&mut self, client: &C) {
        if self.together.len() < APART {
            self.together.insert(client.clone());
        }
    }

    fn add(&mut self, now: Instant) -> Option<Due> {
        self.last = now;
        let count = self.occurrences.add(now)?;
        Some(Due { count, clients: std::mem::take(&mut self.together).len().max(1) })
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
        let (events, now) = (OccurrencesByClient::<String>::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let add = |client: &str, seconds| events.add(KIND, &client.to_owned(), at(seconds));
        assert_eq!(add("a", 0), Some(of_one(1)));
        for _ in 0..200 {
            assert_eq!(add("a", 1), None);
        }
        assert_eq!(add("b", 1), Some(of_one(1)), "another client");
        assert_eq!(events.add("NODE_DRAINED", &"a".to_owned(), at(1)), Some(of_one(1)), "another kind");
        assert_eq!(add("a", 60), Some(of_one(201)));
        for number in 0..3 * APART {
            add(&format!("p{number}"), 200 + 60 * number as u64);
        }
        assert!(events.counted.lock().len() <= APART);
    }

    #[test]
    fn clients_beyond_the_bound_share_a_record() {
        let (events, now) = (OccurrencesByClient::<String>::default(), Instant::now());
        let records =
            (0..2 * APART).filter(|number| events.add(KIND, &format!("p{number}"), now).is_some()).count();
        assert_eq!((records, events.counted.lock().len()), (APART + 1, APART + 1));
        let new = events.add(KIND, &"new".to_owned(), now + WINDOW);
        assert_eq!(new, Some(of_one(1)), "the others are forgotten");
    }

    #[test]
    fn a_shared_record_has_the_number_of_its_clients() {
        let (events, now) = (OccurrencesByClient::<String>::default(), Instant::now());
        let add =
            |client: &str, seconds| events.add(KIND, &client.to_owned(), now + Duration::from_secs(seconds));
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

    #[test]
    fn a_client_has_as_many_records_a_minute_as_it_may() {
        let (events, now) = (OccurrencesByClient::<String>::new(3), Instant::now());
        let add =
            |client: &str, seconds| events.add(KIND, &client.to_owned(), now + Duration::from_secs(seconds));
        for seconds in [0, 1, 59] {
            assert_eq!(add("a", seconds), Some(of_one(1)));
        }
        assert_eq!((add("a", 59), add("a", 59)), (None, None));
        assert_eq!(add("b", 59), Some(of_one(1)), "another client");
        assert_eq!((add("a", 60), add("a", 60)), (Some(of_one(3)), Some(of_one(1))));
    }

    #[test]
    fn events_of_forgotten_clients_are_on_the_next_shared_record() {
        let (events, now) = (OccurrencesByClient::<String>::default(), Instant::now());
        let add =
            |client: &str, seconds| events.add(KIND, &client.to_owned(), now + Duration::from_secs(seconds));
        for client in ["a", "a", "a", "b", "b"] {
            add(client, 0);
        }
        for number in 0..APART - 1 {
            add(&format!("p{number}"), 60);
        }
        assert_eq!(add("c", 61), Some(Due { count: 4, clients: 3 }));
    }
}
