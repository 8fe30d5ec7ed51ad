//! How many there are of something for each of its owners: connections and requests of a principal, requests of an address.
//! Nothing is kept of an owner who has none.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The shares of all owners `O`.
#[derive(Clone)]
pub(super) struct Shares<O: Eq + Hash> {
    most: usize,
    /// How many each owner has who has any.
    taken: Arc<Mutex<HashMap<O, usize>>>,
}

/// One owner's share, given back when it is dropped.
pub(super) struct Share<O: Eq + Hash> {
    shares: Shares<O>,
    owner: O,
}

impl<O: Eq + Hash + Clone> Shares<O> {
    /// Each owner has at most `most`.
    pub(super) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// One more for `owner`, unless it has as many as it may.
    pub(super) fn take(&self, owner: O) -> Option<Share<O>> {
        let mut taken = self.lock();
        let count = taken.get(&owner).copied().unwrap_or(0);
        if count >= self.most {
            return None;
        }
        taken.insert(owner.clone(), count + 1);
        Some(Share { shares: self.clone(), owner })
    }
}

impl<O: Eq + Hash> Shares<O> {
    fn lock(&self) -> MutexGuard<'_, HashMap<O, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<O: Eq + Hash> Share<O> {
    pub(super) fn owner(&self) -> &O {
        &self.owner
    }
}

impl<O: Eq + Hash> Drop for Share<O> {
    fn drop(&mut self) {
        let mut taken = self.shares.lock();
        match taken.get_mut(&self.owner) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.owner)),
        }
    }
}

/// Without the other owners.
impl<O: Eq + Hash + fmt::Debug> fmt::Debug for Share<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.owner).finish()
    }
}

impl<O: Eq + Hash> fmt::Debug for Shares<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn each_owner_has_its_own_and_nothing_is_kept_of_who_has_none() {
        let shares = Shares::new(2);
        let taken = [shares.take("a").unwrap(), shares.take("a").unwrap(), shares.take("b").unwrap()];
        assert!(shares.take("a").is_none() && shares.take("b").is_some());
        drop(taken);
        assert!(shares.lock().is_empty());
        assert!(shares.take("a").is_some());
    }
}
