//! The terminals that browsers have open, by a secret of each.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use wire::v1::OpenTerminalRequest;

use crate::session::{Session, secret};

/// Way to the terminal of a browser.
pub(super) type Input = mpsc::Sender<OpenTerminalRequest>;

/// Terminals that are open. The daemon bounds their number.
#[derive(Clone, Default)]
pub(super) struct Table(Arc<Mutex<HashMap<String, Open>>>);

struct Open {
    session: Arc<Session>,
    input: Input,
}

/// Entry of a terminal. Dropping it closes the way, and so ends the terminal.
pub(super) struct Entry {
    table: Table,
    key: String,
}

impl Table {
    /// Adds a terminal of a session.
    pub(super) fn add(&self, session: Arc<Session>, input: Input) -> Entry {
        let key = secret();
        self.0.lock().insert(key.clone(), Open { session, input });
        Entry { table: self.clone(), key }
    }

    /// Returns the way to a terminal, for the session that opened it.
    pub(super) fn input(&self, key: &str, session: &Arc<Session>) -> Option<Input> {
        let open = self.0.lock();
        open.get(key).filter(|open| Arc::ptr_eq(&open.session, session)).map(|open| open.input.clone())
    }
}

impl Entry {
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.table.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use timestamp::UnixMillis;

    use super::*;
    use crate::access::Identity;
    use crate::session::Sessions;

    #[test]
    fn a_terminal_is_for_the_session_that_opened_it() {
        let sessions = Sessions::default();
        let session =
            || sessions.open(Identity::User { uid: 1, gid: 1 }, "uid:1".to_owned(), UnixMillis(1)).1;
        let (one, other) = (session(), session());
        let (input, mut requests) = mpsc::channel(1);
        let table = Table::default();
        let entry = table.add(one.clone(), input);
        assert!(table.input(entry.key(), &one).is_some());
        assert!(table.input(entry.key(), &other).is_none() && table.input("", &one).is_none());
        let key = entry.key().to_owned();
        drop(entry);
        assert!(table.input(&key, &one).is_none());
        assert!(requests.try_recv().is_err_and(|error| error == mpsc::error::TryRecvError::Disconnected));
    }
}
