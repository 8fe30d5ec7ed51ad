#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod alert;
mod database;
mod disk;
pub mod run;
pub mod spool;
mod time;

pub use database::{
    MAX_SESSIONS, Mark, Marked, OutcomeBounds, SettledApproval, Store, StoreError, StoredApproval,
    StoredCall, Taken, Turn,
};
pub use disk::StateDisk;
pub use time::{Timestamp, micros};
