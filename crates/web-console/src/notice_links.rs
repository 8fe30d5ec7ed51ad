//! Links in notices: each opens one approval for one principal, once.

use std::collections::HashMap;

use parking_lot::Mutex;
use timestamp::UnixMillis;

use crate::session::{key_of, secret};

/// Life of a link, milliseconds.
const LIFE: u64 = 10 * 60 * 1_000;
/// Most links that wait, and of one principal.
const MOST: usize = 4_096;
const MOST_OF_ONE: usize = 64;

/// The links that wait for their use, by the SHA-256 of their codes.
#[derive(Default)]
pub(crate) struct NoticeLinks(Mutex<HashMap<[u8; 32], Waiting>>);

/// A link that waits for its use.
pub(crate) struct Waiting {
    pub(crate) principal: String,
    pub(crate) approval: String,
    pub(crate) run: String,
    pub(crate) made_at: UnixMillis,
    ends_at: UnixMillis,
}

impl NoticeLinks {
    /// Makes a code. The oldest one of the principal ends if it has too many.
    pub(crate) fn make(
        &self,
        principal: &str,
        (approval, run): (&str, &str),
        now: UnixMillis,
    ) -> Option<String> {
        let code = secret();
        let mut links = self.0.lock();
        links.retain(|_, link| link.ends_at > now);
        if links.values().filter(|link| link.principal == principal).count() >= MOST_OF_ONE {
            let oldest = links.iter().filter(|(_, link)| link.principal == principal);
            let oldest = oldest.min_by_key(|(_, link)| link.ends_at.0).map(|(key, _)| *key);
            oldest.and_then(|key| links.remove(&key));
        }
        if links.len() >= MOST {
            return None;
        }
        let link = Waiting {
            principal: principal.to_owned(),
            approval: approval.to_owned(),
            run: run.to_owned(),
            made_at: now,
            ends_at: UnixMillis(now.0.saturating_add(LIFE)),
        };
        links.insert(key_of(&code), link);
        Some(code)
    }

    /// Returns the principal of a link, which stays.
    pub(crate) fn principal(&self, code: &str, now: UnixMillis) -> Option<String> {
        let links = self.0.lock();
        links.get(&key_of(code)).filter(|link| link.ends_at > now).map(|link| link.principal.clone())
    }

    /// Takes a link, which opens nothing from then on.
    pub(crate) fn take(&self, code: &str, now: UnixMillis) -> Option<Waiting> {
        self.0.lock().remove(&key_of(code)).filter(|link| link.ends_at > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: UnixMillis = UnixMillis(1_000_000);

    #[test]
    fn a_link_opens_its_approval_once_within_its_time() {
        let links = NoticeLinks::default();
        let code = links.make("uid:1", ("a", "r"), START).unwrap();
        assert_eq!(links.principal(&code, START).as_deref(), Some("uid:1"));
        assert!(links.take("", START).is_none() && links.take(&code[..63], START).is_none());
        let taken = links.take(&code, START).unwrap();
        assert_eq!((taken.approval.as_str(), taken.run.as_str(), taken.made_at), ("a", "r", START));
        assert!(links.take(&code, START).is_none() && links.principal(&code, START).is_none());
        let late = links.make("uid:1", ("a", "r"), START).unwrap();
        assert!(links.take(&late, UnixMillis(START.0 + LIFE)).is_none());
    }

    #[test]
    fn links_are_bounded_and_one_principal_ends_only_its_own() {
        let links = NoticeLinks::default();
        let other = links.make("uid:2", ("a", "r"), START).unwrap();
        let first = links.make("uid:1", ("a", "r"), START).unwrap();
        for nr in 1..=MOST_OF_ONE as u64 {
            links.make("uid:1", ("a", "r"), UnixMillis(START.0 + nr)).unwrap();
        }
        assert!(links.take(&first, START).is_none() && links.take(&other, START).is_some());
        for nr in 0..MOST {
            links.make(&format!("uid:x{nr}"), ("a", "r"), START);
        }
        assert!(links.make("uid:more", ("a", "r"), START).is_none());
    }
}
