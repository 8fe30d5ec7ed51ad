//! Indexes the audit log, so that queries find records by their fields.
//!
//! ```text
//!  segments ──► thread (proves, fills) ──► audit/index.db ──► queries (prove again what they answer)
//! ```
//!
//! The index is derived from the segments alone, and has no weight as evidence. A missing, damaged or outdated index, or one of
//! another version or another log, is rebuilt or brought up to date. One thread does so, at a lower priority and up to the durable
//! head: a call neither waits for it nor fails with it.
//!
//! During a rebuild queries are refused, with its progress. Otherwise a query waits a moment for the head, so that clients find the
//! records of their last calls.

mod fill;
mod names;
mod query;
mod row;
mod schema;
mod state;
mod thread;
mod token;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use audit::Head;
use operations::Reason;
use parking_lot::Mutex;
use refusal::{Refusal, chain};
use rusqlite::Connection;
use tokio::sync::{Semaphore, watch};

use crate::tail::Tail;

pub use query::{Page, Query};
pub use state::{IndexError, State};
pub use token::Bound;

use state::Shared;

/// Most queries that are answered at the same time.
const READERS: usize = 4;
/// Longest time that a query waits for records that were written before it.
const CATCH_UP: Duration = Duration::from_secs(2);
/// Longest time that a query waits for others.
const TURN: Duration = Duration::from_secs(10);

pub struct Index {
    /// Directory of the log.
    directory: PathBuf,
    path: PathBuf,
    head: watch::Receiver<Option<Head>>,
    state: watch::Receiver<State>,
    shared: Arc<Shared>,
    turns: Semaphore,
    /// Unused connections, each with the number of the file that it reads.
    idle: Mutex<Vec<(u64, Connection)>>,
}

impl Index {
    /// Starts to index the log in `directory` up to its moving head. The thread ends with the head's sender.
    pub(crate) fn start(
        directory: &Path,
        head: watch::Receiver<Option<Head>>,
        tail: Arc<Tail>,
    ) -> std::io::Result<Self> {
        let path = directory.join("index.db");
        let (state_sender, state) = watch::channel(State::Building(0));
        let shared = Arc::new(Shared::default());
        let thread = thread::Thread {
            directory: directory.to_owned(),
            path: path.clone(),
            head: head.clone(),
            state: state_sender,
            shared: shared.clone(),
            runtime: tokio::runtime::Handle::current(),
            tail,
        };
        std::thread::Builder::new().name("audit-index".to_owned()).spawn(move || thread.run())?;
        let turns = Semaphore::new(READERS);
        let directory = directory.to_owned();
        Ok(Self { directory, path, head, state, shared, turns, idle: Mutex::default() })
    }

    /// Returns the log's last durable record.
    pub fn head(&self) -> u64 {
        self.head.borrow().map_or(0, |head| head.sequence)
    }

    /// Returns the state of the index as it changes.
    pub fn states(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// Returns how often the index was rebuilt since the daemon's start.
    pub fn made(&self) -> u64 {
        self.shared.made.load(Ordering::Acquire)
    }

    /// Requests a rebuild of the index.
    pub fn rebuild(&self) {
        self.shared.rebuild.store(true, Ordering::Release);
        self.shared.wake.notify_one();
    }

    /// Answers a page. It covers all that is in the log now, if the index catches up in time.
    pub async fn query(self: &Arc<Self>, query: Query) -> Result<Page, Refusal> {
        let turn = tokio::time::timeout(TURN, self.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(Refusal::new(
                Reason::Overloaded,
                "too many queries of the audit log at once: ask again later",
            ));
        };
        self.caught_up(self.head()).await?;
        let index = self.clone();
        let answered = tokio::task::spawn_blocking(move || index.answer(&query)).await;
        match answered.map_err(|error| Refusal::internal("querying the audit log", &error))? {
            Ok(page) => Ok(page),
            // A rebuild would not help.
            Err(IndexError::Log(error)) => {
                tracing::error!(error = %chain(&error), "a record of the audit log that a query found cannot be read");
                Err(Refusal::new(
                    Reason::AuditUnavailable,
                    "a record that this query finds cannot be read from the audit log, which may be damaged: verify the \
                     log (`coffer audit verify`)",
                ))
            }
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the audit log's index is damaged and is being rebuilt");
                self.idle.lock().clear();
                self.rebuild();
                Err(building(0, self.head()))
            }
        }
    }

    fn answer(&self, query: &Query) -> Result<Page, IndexError> {
        // Read before the file is opened: a connection to a replaced file must never count as one to the new file.
        let made = self.shared.made.load(Ordering::Acquire);
        let idle = self.idle.lock().pop().filter(|(of, _)| *of == made);
        let mut connection = match idle {
            Some((_, connection)) => connection,
            None => schema::open_for_reading(&self.path)?,
        };
        let page = query::answer(&mut connection, &self.directory, query)?;
        self.idle.lock().push((made, connection));
        Ok(page)
    }

    async fn caught_up(&self, head: u64) -> Result<(), Refusal> {
        let mut state = self.state.clone();
        let far = |state: &State| match state {
            State::Ready(through) => *through >= head,
            // Waits a moment at the daemon's start; the refusal below is for rebuilds that take longer.
            State::Building(_) => false,
            State::Failed => true,
        };
        if !far(&state.borrow()) {
            self.shared.hurry.store(true, Ordering::Release);
            self.shared.wake.notify_one();
            let _ = tokio::time::timeout(CATCH_UP, state.wait_for(far)).await;
        }
        let now = *state.borrow();
        match now {
            State::Ready(_) => Ok(()),
            State::Building(through) => Err(building(through, head)),
            State::Failed => Err(Refusal::new(
                Reason::AuditUnavailable,
                "the audit log's index can be neither read nor rebuilt; see the daemon's log. The audit log \
                 itself is not affected and can be streamed",
            )),
        }
    }
}

fn building(through: u64, head: u64) -> Refusal {
    Refusal::new(
        Reason::AuditUnavailable,
        format!("the audit log's index is being built ({through} of {head} records): try again later. The audit log itself is not affected"),
    )
    .with("indexed_through", through.to_string())
    .with("head_sequence", head.to_string())
}

#[cfg(test)]
mod tests;
