//! Places of the streams that watch the node. One principal has a quarter of them at most.

use std::sync::Arc;

use admission::{Owner, Purpose, Share, ShareLimits, Shares};
use operations::Reason;
use refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of watchers, and of those of one principal.
const MOST: usize = 64;
const MOST_OF_ONE: usize = MOST / 4;

/// The places of all watchers.
#[derive(Debug)]
pub(crate) struct Watchers {
    all: Arc<Semaphore>,
    shares: Shares,
}

/// The place of one watcher, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _all: OwnedSemaphorePermit,
    _own: Share,
}

impl Watchers {
    pub(crate) fn new() -> Self {
        let limits = ShareLimits { per_principal: MOST_OF_ONE, per_address: MOST };
        Self { all: Arc::new(Semaphore::new(MOST)), shares: Shares::new(limits) }
    }

    /// Takes a place for a watcher of this principal.
    pub(crate) fn enter(&self, principal: &str) -> Result<Place, Refusal> {
        let owner = Owner::Principal(principal.to_owned());
        let own = self.shares.take(vec![owner], Purpose::Steering).map_err(|_| {
            let message =
                format!("you watch the node with {MOST_OF_ONE} requests already: end one, or use GetNode");
            Refusal::new(Reason::Overloaded, message)
        })?;
        let full = |_| Refusal::new(Reason::Overloaded, "too many clients watch the node: use GetNode");
        let all = self.all.clone().try_acquire_owned().map_err(full)?;
        Ok(Place { _all: all, _own: own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_has_a_quarter_of_the_places() {
        let watchers = Watchers::new();
        let enter = |principal: &str| watchers.enter(principal).map_err(|refused| refused.reason);
        let mut places: Vec<Place> = (0..MOST_OF_ONE).map(|_| enter("uid:1").unwrap()).collect();
        assert_eq!(enter("uid:1").unwrap_err(), Reason::Overloaded);
        places.extend((MOST_OF_ONE..MOST).map(|number| enter(&format!("cert:{number}")).unwrap()));
        assert_eq!(enter("uid:2").unwrap_err(), Reason::Overloaded, "all are taken");
        places.remove(0);
        // A refused watcher has taken nothing.
        enter("uid:2").unwrap();
        enter("uid:1").unwrap();
    }
}
