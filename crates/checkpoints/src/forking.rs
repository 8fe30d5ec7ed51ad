//! Places of principals that fork. Each principal makes a few forks at a time, however many requests it has.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Forks that a principal makes at the same time.
pub(crate) const AT_ONCE: usize = 4;

/// The places of all principals that fork now.
#[derive(Default)]
pub(crate) struct Forking(Mutex<BTreeMap<String, Arc<Places>>>);

/// The places of one principal.
pub(crate) struct Places {
    /// Held while the checkpoint of a request is found or made, so that a repeated request makes no second one.
    pub(crate) origin: tokio::sync::Mutex<()>,
    pub(crate) forks: Arc<Semaphore>,
}

impl Forking {
    pub(crate) fn of(&self, principal: &str) -> Arc<Places> {
        let mut all = self.0.lock();
        all.retain(|_, places| Arc::strong_count(places) > 1);
        let new = || {
            Arc::new(Places {
                origin: tokio::sync::Mutex::default(),
                forks: Arc::new(Semaphore::new(AT_ONCE)),
            })
        };
        all.entry(principal.to_owned()).or_insert_with(new).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_principal_has_a_few_places_for_all_its_requests_and_others_have_their_own() {
        let forking = Forking::default();
        let (one, again, other) = (forking.of("uid:1"), forking.of("uid:1"), forking.of("uid:2"));
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE {
            taken.push(one.forks.clone().acquire_owned().await.unwrap());
        }
        assert!(again.forks.try_acquire().is_err());
        assert!(other.forks.try_acquire().is_ok());
        taken.pop();
        assert!(again.forks.try_acquire().is_ok());
        drop((one, again, taken));
        assert_eq!(forking.of("uid:1").forks.available_permits(), AT_ONCE);
        assert_eq!(forking.0.lock().len(), 2);
    }
}
