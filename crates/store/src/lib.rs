#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod allowance;
mod database;
mod disk;
pub mod recording;
mod snapshot;
pub mod spool;

pub use database::{
    Bare, Ending, MAX_SESSIONS, OutcomeBounds, SettledApproval, Store, StoreError, StoredApproval,
    StoredCall, StoredMark, Taken, Trees, Turn,
};
pub use disk::StateDisk;
pub use snapshot::snapshot;
