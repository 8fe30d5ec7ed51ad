//! Tracks which sessions of a run are in use, and which one has been idle longest.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// The sessions that have been seen.
#[derive(Debug, Clone, Default)]
pub(super) struct Sessions(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    by_id: Mutex<HashMap<String, Use>>,
    ended: Notify,
}

#[derive(Debug)]
struct Use {
    /// Number of requests under way, streams included.
    busy: usize,
    /// The time at which the last one ended.
    idle_since: Instant,
}

impl Sessions {
    /// Adds a new session, which is in use until the answer has been sent.
    pub(super) fn begin(&self, id: &str) -> Busy {
        self.0.by_id.lock().insert(id.to_owned(), Use { busy: 1, idle_since: Instant::now() });
        Busy { sessions: self.clone(), id: id.to_owned() }
    }

    /// Marks a session as in use by a request. `None`: there is no such session.
    pub(super) fn enter(&self, id: &str) -> Option<Busy> {
        self.0.by_id.lock().get_mut(id)?.busy += 1;
        Some(Busy { sessions: self.clone(), id: id.to_owned() })
    }

    /// Resolves when a request of any session ends, from this call on.
    pub(super) fn next_end(&self) -> Notified<'_> {
        self.0.ended.notified()
    }

    /// Removes the one of `living` that has been idle longest. `None`: each has a request or a stream under way.
    ///
    /// Forgets the sessions that are not in `living`.
    pub(super) fn evict<'l>(&self, living: &'l [Arc<str>]) -> Option<&'l str> {
        let mut uses = self.0.by_id.lock();
        uses.retain(|id, _| living.iter().any(|living| **living == **id));
        let idle = |id: &&str| uses.get(*id).map(|used| (used.busy == 0).then_some(used.idle_since));
        // A session without any known request counts as the most idle.
        let longest = living
            .iter()
            .map(|id| &**id)
            .filter(|id| idle(id) != Some(None))
            .min_by_key(|id| idle(id).flatten())?;
        uses.remove(longest);
        Some(longest)
    }
}

/// A guard that keeps a session in use.
#[derive(Debug)]
pub(super) struct Busy {
    sessions: Sessions,
    id: String,
}

impl Drop for Busy {
    fn drop(&mut self) {
        if let Some(used) = self.sessions.0.by_id.lock().get_mut(&self.id) {
            used.busy = used.busy.saturating_sub(1);
            used.idle_since = Instant::now();
        }
        self.sessions.0.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_session_that_was_idle_longest_is_evicted_and_no_busy_one() {
        let sessions = Sessions::default();
        let living: Vec<Arc<str>> = ["a", "b", "c"].map(Arc::from).into();
        let tick = || tokio::time::advance(Duration::from_secs(1));
        for id in &living {
            drop(sessions.begin(id));
            tick().await;
        }
        // The first one is used again, and goes on.
        let stream = sessions.enter("a").unwrap();
        let request = sessions.enter("a").unwrap();
        drop(request);
        tick().await;
        assert!(sessions.enter("d").is_none());
        assert_eq!(sessions.evict(&living), Some("b"));
        assert!(sessions.enter("b").is_none(), "it is gone at once");
        let living = [living[0].clone(), living[2].clone()];
        let other = sessions.enter("c").unwrap();
        assert_eq!(sessions.evict(&living), None, "each is busy");
        drop(stream);
        tick().await;
        drop(other);
        assert_eq!(sessions.evict(&living), Some("a"));
        // One whose making nobody has seen to its end.
        let unseen: [Arc<str>; 2] = ["c".into(), "x".into()];
        assert_eq!(sessions.evict(&unseen), Some("x"));
        assert_eq!(sessions.evict(&unseen[..1]), Some("c"));
        assert_eq!(sessions.evict(&[]), None);
    }
}
