//! The first reason for which a connection has to end at once.

use std::cell::Cell;
use std::io;

use tokio::sync::Notify;
use wire::worker::v1::connection_ended::Cause;

/// The first cause for which a connection has to end at once.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    cause: Cell<Option<Cause>>,
    set: Notify,
    /// Set after a malformed head, which hyper answers.
    pub(crate) malformed: Cell<bool>,
}

impl Fault {
    pub(crate) fn set(&self, cause: Cause) {
        if self.cause.get().is_none() {
            self.cause.set(Some(cause));
            self.set.notify_waiters();
        }
    }

    pub(crate) fn get(&self) -> Option<Cause> {
        self.cause.get()
    }

    pub(crate) async fn wait(&self) -> Cause {
        loop {
            let set = self.set.notified();
            if let Some(cause) = self.get() {
                return cause;
            }
            set.await;
        }
    }

    /// Sets the cause. Returns the error that a reader or a writer ends with.
    pub(crate) fn error(&self, cause: Cause) -> io::Error {
        self.set(cause);
        io::ErrorKind::InvalidData.into()
    }
}
