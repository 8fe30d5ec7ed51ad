//! Sign-ins that were finished, so that the cookie of each finishes one.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// Most sign-ins that are remembered. An address with ten a second has 6,000 in the life of one.
const MOST: usize = 65_536;

/// The sign-ins that were finished and whose time is not over.
#[derive(Default)]
pub(crate) struct Spent(Mutex<Table>);

#[derive(Default)]
struct Table {
    /// Their ends, in seconds since 1970, and the hashes of their states.
    known: BTreeSet<(u64, [u8; 32])>,
    /// Each sign-in with an end up to this counts as finished, because one of them was forgotten.
    forgotten: u64,
}

impl Spent {
    /// Spends a sign-in that ends at `until`. Returns false if it was spent before, or if that is not known any longer.
    pub(crate) fn spend(&self, state: &str, until: u64, now: u64) -> bool {
        self.spend_of(MOST, state, until, now)
    }

    fn spend_of(&self, most: usize, state: &str, until: u64, now: u64) -> bool {
        let mut table = self.0.lock();
        if until <= table.forgotten || !table.known.insert((until, Sha256::digest(state).into())) {
            return false;
        }
        while table.known.first().is_some_and(|(end, _)| *end <= now) {
            table.known.pop_first();
        }
        if table.known.len() > most
            && let Some((end, _)) = table.known.pop_first()
        {
            table.forgotten = end;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_is_spent_once_and_remembered_until_its_end() {
        let spent = Spent::default();
        assert!(spent.spend("a", 600, 1) && spent.spend("b", 600, 1));
        assert!(!spent.spend("a", 600, 2) && !spent.spend("b", 600, 599));
        assert!(spent.spend("c", 1_200, 600));
        assert_eq!(spent.0.lock().known.len(), 1, "those that are over are forgotten");
    }

    #[test]
    fn a_flood_makes_earlier_sign_ins_over_and_none_usable_again() {
        let spent = Spent::default();
        for number in 0..10 {
            assert!(spent.spend_of(4, &number.to_string(), 600 + number, 1));
        }
        for number in 0..10 {
            assert!(!spent.spend_of(4, &number.to_string(), 600 + number, 1), "{number}");
        }
        assert_eq!(spent.0.lock().known.len(), 4);
        assert!(!spent.spend_of(4, "begun early and not finished", 605, 1));
        assert!(spent.spend_of(4, "begun late", 609, 1));
    }
}
