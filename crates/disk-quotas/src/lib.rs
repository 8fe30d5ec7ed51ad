#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod account;
mod disk;
mod left;
mod projects;
mod reservation;
mod state_disk;

pub use account::{Account, Found, Standing, Verdict};
pub use disk::{Disk, Free, Promise};
pub use left::{Expected, Left};
pub use projects::Projects;
pub use reservation::Reservation;
pub use state_disk::{Level, Quotas, Thresholds};
