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
    StoredCall, StoredMark, Taken, Trees, Turn, schema_version,
};
pub use disk::StateDisk;

/// Version of sealed values.
pub const SEALED: u32 = seal::VERSION as u32;
pub use snapshot::snapshot;
