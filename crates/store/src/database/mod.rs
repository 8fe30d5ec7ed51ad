//! State that has to outlive the daemon, besides the audit log: runs, calls that wait for a reviewer, and outcomes of calls. SQLite in WAL
//! mode.
//!
//! All functions block on the disk. Async code calls them through [`Store::with`], in the store's thread. There is only one connection.
//! More threads would only wait for it, for example a hundred of them when a hundred runs are made. Each table's functions have a separate
//! file; the tables are made in `schema.rs`.

mod alerts;
mod approvals;
mod bases;
mod bound;
mod calls;
mod checkpoints;
mod ending;
mod mark;
mod passkeys;
mod policies;
mod push_subscriptions;
mod restored;
mod retired;
mod runs;
mod schema;
mod secrets;
mod settled;
mod transcripts;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, mpsc};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, Params};
use seal::{Broken, Seal, StreamKey, TooLong};
use tokio::sync::oneshot;

pub use approvals::StoredApproval;
pub use bound::Outcomes as OutcomeBounds;
pub use calls::{Bare, StoredCall};
pub use ending::Ending;
pub use mark::StoredMark;
pub use restored::Trees;
pub use schema::schema_version;
pub use settled::SettledApproval;
pub use transcripts::{MAX_SESSIONS, Taken, Turn};

/// Bytes of the journal that remain after a checkpoint.
const JOURNAL: u32 = 4 << 20;
/// Number that says of a database file that it is this store: "coff".
const APPLICATION: u32 = 0x636f_6666;

/// Error of a store operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store failed")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the store holds a record that cannot be read")]
    Record(#[from] serde_json::Error),
    #[error("the store is of a later version ({0}) than this daemon")]
    Newer(u32),
    #[error("the store holds a value that cannot be opened")]
    Sealed(#[from] Broken),
    #[error("the store cannot seal a value")]
    Unsealed(#[from] TooLong),
    #[error("the key that the store is sealed with cannot be used")]
    Key(#[source] std::io::Error),
    #[error("the thread of the store cannot be started")]
    Thread(#[source] std::io::Error),
    #[error("the store's task ended")]
    Task,
    #[error("a copy of the store cannot be written")]
    Copy(#[source] std::io::Error),
    #[error("the copy of the store is damaged")]
    Damaged,
    #[error("a run that was deleted had this id")]
    Retired,
}

impl StoreError {
    /// Returns true if another row has taken the id meanwhile.
    pub fn is_conflict(&self) -> bool {
        use rusqlite::ErrorCode::ConstraintViolation;
        matches!(self, Self::Sqlite(error) if error.sqlite_error_code() == Some(ConstraintViolation))
    }
}

/// A handle on the store. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

type Job = Box<dyn FnOnce() + Send>;

struct Inner {
    connection: Mutex<Connection>,
    /// Queue of the thread of [`Store::with`], which ends with the last handle.
    jobs: mpsc::Sender<Job>,
    /// Seals data that may contain a secret.
    seal: Seal,
    /// Use of the store by outcomes, and its limits.
    outcomes: bound::Kept,
}

impl Store {
    /// Opens or makes the database at `path`, and the key beside it with which it is sealed. `bounds` limits the stored outcomes.
    pub fn open(path: &Path, bounds: OutcomeBounds) -> Result<Self, StoreError> {
        let mut connection = Connection::open(path)?;
        // Takes effect only in a new database. It can then return free pages to the disk.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "journal_size_limit", JOURNAL)?;
        // Answered requests survive a crash of the machine, except outcomes that are stored without a sync.
        connection.pragma_update(None, "synchronous", "FULL")?;
        schema::bring_up_to_date(&mut connection)?;
        bound::allow_giving_back(&connection, path)?;
        let seal = Seal::open(&path.with_file_name("seal.key")).map_err(StoreError::Key)?;
        let outcomes = bound::Kept::open(&connection, path, bounds)?;
        let jobs = start_thread().map_err(StoreError::Thread)?;
        Ok(Self(Arc::new(Inner { connection: Mutex::new(connection), jobs, seal, outcomes })))
    }

    /// Runs `job` in the store's thread, after earlier jobs, even if its caller is dropped meanwhile.
    pub async fn with<T, F>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    {
        let (store, (answer, answered)) = (self.clone(), oneshot::channel());
        let job = Box::new(move || drop(answer.send(job(&store))));
        self.0.jobs.send(job).map_err(|_| StoreError::Task)?;
        answered.await.map_err(|_| StoreError::Task)?
    }

    /// Derives the key of streams beside the store, such as the spool's.
    pub fn stream_key(&self, purpose: &str) -> Result<StreamKey, StoreError> {
        self.0.seal.stream_key(purpose).map_err(StoreError::Key)
    }

    /// Writes to the database, durably. An error means that nothing can be stored now.
    pub fn check_writable(&self) -> Result<(), StoreError> {
        Ok(self.lock().pragma_update(None, "application_id", APPLICATION)?)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.0.connection.lock()
    }

    /// Returns the first column of all rows.
    fn texts(&self, query: &str, parameters: impl Params) -> Result<Vec<String>, StoreError> {
        let connection = self.lock();
        let mut statement = connection.prepare(query)?;
        let rows = statement.query_map(parameters, |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }
}

fn start_thread() -> std::io::Result<mpsc::Sender<Job>> {
    let (jobs, coming) = mpsc::channel::<Job>();
    let work = move || {
        for job in coming {
            // If a job panics, its caller gets an error, and the other jobs continue.
            let _ = catch_unwind(AssertUnwindSafe(job));
        }
    };
    std::thread::Builder::new().name("store".to_owned()).spawn(work)?;
    Ok(jobs)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use futures_util::FutureExt as _;
    use identity::{CallId, RunId};

    use super::{OutcomeBounds, Store, StoreError, StoredCall, mpsc};

    /// Adds a run.
    pub(crate) fn run(store: &Store) -> RunId {
        let id = RunId::new();
        store.insert_run(id, "{}", None, &BTreeMap::new()).unwrap();
        id
    }

    #[tokio::test]
    async fn jobs_run_in_order_without_their_callers_and_without_a_waiting_thread() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"), OutcomeBounds::WIDE).unwrap();
        let (go, wait) = mpsc::channel::<()>();
        let mut first = Box::pin(store.with(move |_| wait.recv().map_err(|_| StoreError::Task)));
        assert!((&mut first).now_or_never().is_none());
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let (before, (done, order)) = (threads(), mpsc::channel());
        for number in 0..100 {
            let done = done.clone();
            let job = store.with(move |_| done.send(number).map_err(|_| StoreError::Task));
            assert!(job.now_or_never().is_none(), "its caller goes away");
        }
        assert_eq!(threads(), before);
        go.send(()).unwrap();
        first.await.unwrap();
        let panics = store.with(|_| -> Result<(), StoreError> { panic!("in a job") }).await;
        assert!(matches!(panics, Err(StoreError::Task)));
        assert!(order.try_iter().eq(0..100));
        assert!(store.with(Store::runs).await.unwrap().is_empty(), "the others go on");
    }

    #[test]
    fn runs_and_calls_survive_reopening() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store.db");
        let run = RunId::new();
        let call = StoredCall {
            call_id: CallId::new(),
            run_id: run,
            principal: "uid:0".into(),
            request_id: Some("r1".into()),
            request: vec![1, 2],
            response: vec![3],
            promised: true,
        };
        {
            let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
            store.insert_run(run, "{CREATING}", Some(("q", b"digest")), &BTreeMap::new()).unwrap();
            store.update_run(run, "{READY}", false).unwrap();
            store.insert_calls(std::slice::from_ref(&call), <[u8]>::to_vec).unwrap();
        }
        let store = Store::open(&path, OutcomeBounds::WIDE).unwrap();
        assert_eq!(store.runs().unwrap(), ["{READY}"]);
        assert_eq!(store.run_by_request("q").unwrap(), Some(("{READY}".to_owned(), b"digest".to_vec())));
        assert_eq!(store.run_by_request("other").unwrap(), None);
        assert_eq!(store.call(call.call_id).unwrap(), Some(call.clone()));
        assert_eq!(store.call_ids().unwrap(), [call.call_id].into());
        assert_eq!(store.call_by_request(run, "r1").unwrap(), Some(call.clone()));
        assert_eq!(store.call_by_request(RunId::new(), "r1").unwrap(), None);
        store.delete_run(run).unwrap();
        assert_eq!(store.call(call.call_id).unwrap(), None);
        store.insert_calls(std::slice::from_ref(&call), <[u8]>::to_vec).unwrap();
        assert_eq!(store.call(call.call_id).unwrap(), None, "one that comes after its run has gone");
        assert!(store.runs().unwrap().is_empty());
    }
}
