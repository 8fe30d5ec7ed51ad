//! Turns for costly work. Each client has one at a time.
//!
//! So at most one request of each client waits among all, and a client with many requests delays its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Time for which a request waits for its turn.
pub const WAIT: Duration = Duration::from_secs(120);
/// Time that the other end of a transfer has to take a piece, or to send one, if a turn at another daemon may delay it.
///
/// A client that copies from one daemon to another takes nothing from the first while the second one waits for its turn or asks its
/// engine. So it is longer than that wait, by the time for four questions to an engine.
pub const STALL: Duration = Duration::from_secs(WAIT.as_secs() + 60);

/// Turns of all clients.
#[derive(Debug)]
pub struct Turns {
    all: Arc<Semaphore>,
    /// One permit for each client that has a turn or waits for one.
    own: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Turn {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// The right of a client to wait for a turn, until it is dropped. Its other requests wait for it.
#[derive(Debug)]
#[must_use]
pub struct Place {
    own: OwnedSemaphorePermit,
    all: Arc<Semaphore>,
}

impl Turns {
    /// Returns turns of which `at_once` are taken at the same time.
    pub fn new(at_once: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(at_once)), own: Mutex::default() }
    }

    /// Waits for a turn of the client, for [`WAIT`]. `None`: it came to none.
    pub async fn wait(&self, client: &str) -> Option<Turn> {
        let both = async { self.wait_own(client).await?.wait().await };
        tokio::time::timeout(WAIT, both).await.ok().flatten()
    }

    /// Waits until the client has no other turn. The caller bounds the time.
    pub async fn wait_own(&self, client: &str) -> Option<Place> {
        let own = self.of(client).acquire_owned().await.ok()?;
        Some(Place { own, all: self.all.clone() })
    }

    fn of(&self, client: &str) -> Arc<Semaphore> {
        let mut own = self.own.lock();
        own.retain(|_, permit| Arc::strong_count(permit) > 1);
        own.entry(client.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
    }
}

impl Place {
    /// Waits for one of the turns of all clients. The caller bounds the time.
    pub async fn wait(self) -> Option<Turn> {
        let all = self.all.acquire_owned().await.ok()?;
        Some(Turn { _own: self.own, _all: all })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    /// Returns the turn if it is there at once.
    fn at_once(turns: &Turns, client: &str) -> Option<Turn> {
        match pin!(turns.wait(client)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => turn,
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_client_has_one_turn_at_a_time_and_leaves_the_other_to_others() {
        let turns = Turns::new(2);
        let first = at_once(&turns, "a").unwrap();
        assert!(at_once(&turns, "a").is_none(), "one of its own");
        let other = at_once(&turns, "b").unwrap();
        assert!(at_once(&turns, "c").is_none(), "two of all");
        drop(first);
        let third = at_once(&turns, "c").unwrap();
        assert!(at_once(&turns, "a").is_none() && turns.own.lock().len() == 3);
        drop((other, third));
        assert!(at_once(&turns, "a").is_some());
        assert_eq!(turns.own.lock().len(), 1, "clients without a turn are forgotten");
    }

    #[tokio::test]
    async fn a_client_that_does_not_wait_for_a_turn_yet_has_none_of_all() {
        let turns = Turns::new(1);
        let place = turns.wait_own("a").await.unwrap();
        assert!(at_once(&turns, "a").is_none());
        let other = at_once(&turns, "b").unwrap();
        drop(other);
        let turn = place.wait().await.unwrap();
        assert!(at_once(&turns, "b").is_none());
        drop(turn);
        assert!(at_once(&turns, "a").is_some());
    }
}
