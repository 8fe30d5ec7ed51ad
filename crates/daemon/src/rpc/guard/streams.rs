//! How many requests each principal over TCP has at the same time, on all of its connections.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Clone)]
pub(super) struct Streams {
    most: usize,
    /// Open requests of each principal that has any.
    open: Arc<Mutex<HashMap<String, usize>>>,
}

/// One request's place, given back when its answer has been sent or dropped.
pub(super) struct Turn {
    streams: Streams,
    principal: String,
}

impl Streams {
    pub(super) fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    pub(super) fn enter(&self, principal: &str) -> Option<Turn> {
        let mut open = self.lock();
        let count = open.get(principal).copied().unwrap_or(0);
        if count >= self.most {
            return None;
        }
        open.insert(principal.to_owned(), count + 1);
        Some(Turn { streams: self.clone(), principal: principal.to_owned() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut open = self.streams.lock();
        match open.get_mut(&self.principal) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.principal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Streams;

    #[test]
    fn each_principal_has_its_own_and_nothing_is_kept_of_who_has_none() {
        let streams = Streams::new(2);
        let turns = [streams.enter("a").unwrap(), streams.enter("a").unwrap(), streams.enter("b").unwrap()];
        assert!(streams.enter("a").is_none() && streams.enter("b").is_some());
        drop(turns);
        assert!(streams.lock().is_empty());
        assert!(streams.enter("a").is_some());
    }
}
