//! The state that queries and the index's thread share.

use std::sync::atomic::{AtomicBool, AtomicU64};

use audit::ReadError;
use tokio::sync::Notify;

/// The reason why the index failed.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("the index failed")]
    Sqlite(#[from] rusqlite::Error),
    #[error("the index contradicts itself or the log")]
    Inconsistent,
    #[error("the log cannot be read")]
    Log(#[from] ReadError),
    #[error("the index's file cannot be replaced")]
    File(#[from] std::io::Error),
}

impl IndexError {
    pub(super) fn of_log(error: std::io::Error) -> Self {
        Self::Log(error.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The index is being rebuilt, and has the records up to this one.
    Building(u64),
    /// The index has the records up to this one.
    Ready(u64),
    /// The index could be neither read nor rebuilt. The thread retries.
    Failed,
}

/// Flags between queries and the thread.
#[derive(Default)]
pub(super) struct Shared {
    /// Wakes the thread for a query that waits, or for a rebuild.
    pub(super) wake: Notify,
    /// True if a query waits for the index.
    pub(super) hurry: AtomicBool,
    pub(super) rebuild: AtomicBool,
    /// How often the file was replaced.
    pub(super) made: AtomicU64,
}
