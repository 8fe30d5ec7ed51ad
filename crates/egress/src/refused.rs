//! Refused names and connections: on record once a minute, with a count.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// Different ones of a minute. All others have one record together.
const DIFFERENT: usize = 256;
/// Host of the record of all others.
const OTHERS: &str = "(others)";

/// A refusal that is counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) host: String,
    /// Port; 0 for a name that was not found.
    pub(crate) port: u16,
    pub(crate) rule: String,
    /// The placeholder for which a request was refused.
    pub(crate) placeholder: Option<Placeholder>,
}

/// A placeholder where it is worth nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placeholder {
    /// Environment variable that has it.
    pub(crate) variable: String,
    /// Name of the secret that it stands for.
    pub(crate) secret: String,
}

/// The refusals of the last minute.
#[derive(Debug, Default)]
pub(crate) struct Refusals(BTreeMap<Key, Counted>);

#[derive(Debug)]
struct Counted {
    since: Instant,
    /// Refusals after the first.
    more: u64,
    why: String,
}

/// Refusals for one record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Due {
    pub(crate) key: Key,
    pub(crate) why: String,
    pub(crate) count: u64,
}

impl Refusals {
    /// Counts a refusal. Returns it if it has to be recorded now, as the first of its minute.
    pub(crate) fn note(&mut self, key: Key, why: &str, now: Instant) -> Option<Due> {
        let is_new = !self.0.contains_key(&key);
        let key = if is_new && self.0.len() >= DIFFERENT {
            Key { host: OTHERS.to_owned(), port: 0, ..key }
        } else {
            key
        };
        if let Some(counted) = self.0.get_mut(&key) {
            counted.more += 1;
            return None;
        }
        self.0.insert(key.clone(), Counted { since: now, more: 0, why: why.to_owned() });
        Some(Due { key, why: why.to_owned(), count: 1 })
    }

    /// Takes the refusals whose minute is over; with `all`, every one. Returns those that have to be recorded.
    pub(crate) fn due(&mut self, now: Instant, all: bool) -> Vec<Due> {
        let is_over = |counted: &Counted| all || now.duration_since(counted.since) >= MINUTE;
        let (over, rest) = std::mem::take(&mut self.0).into_iter().partition(|(_, counted)| is_over(counted));
        self.0 = rest;
        let over: BTreeMap<Key, Counted> = over;
        let counted = over.into_iter().filter(|(_, counted)| counted.more > 0);
        counted.map(|(key, counted)| Due { key, why: counted.why, count: counted.more }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(host: &str) -> Key {
        Key { host: host.to_owned(), port: 443, rule: "default".to_owned(), placeholder: None }
    }

    #[test]
    fn the_first_of_a_minute_is_recorded_at_once_and_the_others_together() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.note(key("a"), "why", now).unwrap().count, 1);
        for _ in 0..5 {
            assert_eq!(refusals.note(key("a"), "why", now), None);
        }
        assert!(refusals.note(key("b"), "why", now).is_some());
        assert!(refusals.due(now, false).is_empty());
        let due = refusals.due(now + MINUTE, false);
        assert_eq!(due, [Due { key: key("a"), why: "why".to_owned(), count: 5 }]);
        assert!(refusals.note(key("a"), "why", now + MINUTE).is_some());
    }

    #[test]
    fn a_placeholder_has_a_record_however_many_refusals_there_are() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        for number in 0..1_000 {
            refusals.note(key(&number.to_string()), "", now);
        }
        let placeholder = Placeholder { variable: "API_KEY".to_owned(), secret: "model".to_owned() };
        let key = Key { placeholder: Some(placeholder), ..key("a") };
        assert_eq!(refusals.note(key.clone(), "", now).map(|due| due.key.placeholder), Some(key.placeholder));
    }

    #[test]
    fn many_different_ones_share_a_record() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let recorded = (0..10_000).filter_map(|number| refusals.note(key(&number.to_string()), "", now));
        assert_eq!(recorded.count(), DIFFERENT + 1);
        let due = refusals.due(now, true);
        assert_eq!(due.iter().map(|due| due.count).sum::<u64>(), 10_000 - DIFFERENT as u64 - 1);
        assert_eq!(due.iter().map(|due| due.key.host.as_str()).collect::<Vec<_>>(), [OTHERS]);
    }
}
