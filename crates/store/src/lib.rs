#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod alert;
pub mod allowance;
mod database;
mod disk;
pub mod recording;
mod replace;
pub mod run;
pub mod spool;
#[doc(hidden)]
pub mod testing;

pub use database::{
    MAX_SESSIONS, Mark, Marked, OutcomeBounds, SettledApproval, Store, StoreError, StoredApproval,
    StoredCall, Taken, Turn,
};
pub use disk::StateDisk;
pub use replace::replace;
