#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod continued;
mod create;
mod send;

pub use continued::{ContinueError, continue_from_backup, is_unfinished};
pub use create::Backups;
pub use send::Events;
