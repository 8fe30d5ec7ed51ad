//! Turns for work on trees. Each turn has a process that reads many files, and a principal has one at a time.
//!
//! So at most one request of each principal waits among all, and a principal with many requests delays its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use operations::Reason;
use parking_lot::Mutex;
use refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Turns at the same time.
pub(crate) const AT_ONCE: usize = 2;
/// Time for which a request waits for its turn.
const WAIT: Duration = Duration::from_secs(120);

pub(crate) struct Turns {
    all: Arc<Semaphore>,
    /// One permit for each principal that has a turn or waits for one.
    own: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
pub(crate) struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

impl Turns {
    pub(crate) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), own: Mutex::default() }
    }

    /// Waits for a turn of the principal, for a limited time.
    pub(crate) async fn wait(&self, principal: &str) -> Result<Turn, Refusal> {
        let own = self.of(principal);
        let both = async {
            let own = own.acquire_owned().await.ok()?;
            let all = self.all.clone().acquire_owned().await.ok()?;
            Some(Turn { _own: own, _all: all })
        };
        tokio::time::timeout(WAIT, both).await.ok().flatten().ok_or_else(|| {
            Refusal::new(Reason::Overloaded, "too many bases are being made or verified; try again later")
        })
    }

    fn of(&self, principal: &str) -> Arc<Semaphore> {
        let mut own = self.own.lock();
        own.retain(|_, permit| Arc::strong_count(permit) > 1);
        own.entry(principal.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Returns the turn if it is there at once.
    fn at_once(turns: &Turns, principal: &str) -> Option<Turn> {
        match pin!(turns.wait(principal)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn.ok(),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_principal_has_one_turn_at_a_time_and_leaves_the_other_to_others() {
        let turns = Turns::new();
        let first = at_once(&turns, "a").unwrap();
        assert!(at_once(&turns, "a").is_none(), "one of its own");
        let other = at_once(&turns, "b").unwrap();
        assert!(at_once(&turns, "c").is_none(), "two of all");
        drop(first);
        let third = at_once(&turns, "c").unwrap();
        assert!(at_once(&turns, "a").is_none() && turns.own.lock().len() == 3);
        drop((other, third));
        assert!(at_once(&turns, "a").is_some());
        assert_eq!(turns.own.lock().len(), 1, "principals without a turn are forgotten");
    }
}
