//! Secrets of links, each of which opens something for one principal, once and for a limited time.

use std::collections::HashMap;

use parking_lot::Mutex;
use timestamp::UnixMillis;

use crate::session::{key_of, secret};

/// Bounds of the links of one kind.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Life of a link, milliseconds.
    pub(crate) life: u64,
    /// Most links that wait, and of one principal.
    pub(crate) most: usize,
    pub(crate) most_of_one: usize,
}

/// The links that wait for their use, by the SHA-256 of their codes.
pub(crate) struct Codes<T> {
    bounds: Bounds,
    waiting: Mutex<HashMap<[u8; 32], Waiting<T>>>,
}

/// A link that waits for its use.
pub(crate) struct Waiting<T> {
    pub(crate) principal: String,
    /// The things that it opens.
    pub(crate) opens: T,
    pub(crate) made_at: UnixMillis,
    ends_at: UnixMillis,
}

impl<T> Codes<T> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, waiting: Mutex::default() }
    }

    /// Makes a code, and returns it with its end. The oldest one of the principal ends if it has too many.
    ///
    /// Returns none if too many of others wait.
    pub(crate) fn make(&self, principal: &str, opens: T, now: UnixMillis) -> Option<(String, UnixMillis)> {
        let (code, ends_at) = (secret(), UnixMillis(now.0.saturating_add(self.bounds.life)));
        let mut waiting = self.waiting.lock();
        waiting.retain(|_, link| link.ends_at > now);
        let own = || waiting.iter().filter(|(_, link)| link.principal == principal);
        if own().count() >= self.bounds.most_of_one {
            let oldest = own().min_by_key(|(_, link)| link.ends_at.0).map(|(key, _)| *key);
            oldest.and_then(|key| waiting.remove(&key));
        }
        if waiting.len() >= self.bounds.most {
            return None;
        }
        let link = Waiting { principal: principal.to_owned(), opens, made_at: now, ends_at };
        waiting.insert(key_of(&code), link);
        Some((code, ends_at))
    }

    /// Returns the principal of a link, which stays.
    pub(crate) fn principal(&self, code: &str, now: UnixMillis) -> Option<String> {
        let waiting = self.waiting.lock();
        waiting.get(&key_of(code)).filter(|link| link.ends_at > now).map(|link| link.principal.clone())
    }

    /// Takes a link, which opens nothing from then on.
    pub(crate) fn take(&self, code: &str, now: UnixMillis) -> Option<Waiting<T>> {
        self.waiting.lock().remove(&key_of(code)).filter(|link| link.ends_at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(1_000_000);
    const BOUNDS: Bounds = Bounds { life: 1_000, most: 20, most_of_one: 3 };

    #[test]
    fn a_link_opens_its_thing_once_within_its_time() {
        let codes = Codes::new(BOUNDS);
        let (code, ends_at) = codes.make("uid:1", "a", START).unwrap();
        assert_eq!((code.len(), ends_at), (64, UnixMillis(START.0 + BOUNDS.life)));
        assert_eq!(codes.principal(&code, START).as_deref(), Some("uid:1"));
        assert!(codes.take("", START).is_none() && codes.take(&code[..63], START).is_none());
        let taken = codes.take(&code, START).unwrap();
        assert_eq!((taken.principal.as_str(), taken.opens, taken.made_at), ("uid:1", "a", START));
        assert!(codes.take(&code, START).is_none() && codes.principal(&code, START).is_none());
        let (late, ends_at) = codes.make("uid:1", "a", START).unwrap();
        assert!(codes.principal(&late, ends_at).is_none() && codes.take(&late, ends_at).is_none());
    }

    #[test]
    fn links_are_bounded_and_one_principal_ends_only_its_own() {
        let codes = Codes::new(BOUNDS);
        let make = |name: &str, at| codes.make(name, (), UnixMillis(START.0 + at)).map(|(code, _)| code);
        let (other, first) = (make("uid:2", 0).unwrap(), make("uid:1", 0).unwrap());
        for at in 1..=BOUNDS.most_of_one as u64 {
            make("uid:1", at).unwrap();
        }
        assert!(codes.principal(&first, START).is_none() && codes.principal(&other, START).is_some());
        let others = (0..100).filter_map(|number| make(&format!("uid:x{number}"), 9)).count();
        assert_eq!(others, BOUNDS.most - BOUNDS.most_of_one - 1);
        assert!(make("uid:more", 9).is_none());
        assert!(make("uid:1", 9).is_some(), "it replaces one of its own");
        assert!(make("uid:more", 10 + BOUNDS.life).is_some(), "those before have ended");
    }
}
