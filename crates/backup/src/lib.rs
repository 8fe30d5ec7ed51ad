#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod check;
mod encrypted;
mod format;
mod read;
mod restore;
mod unlinked;
mod verification;
mod write;

pub use check::{Checked, check};
pub use encrypted::{Encrypting, is_encrypted, open, open_encrypted};
pub use format::{Head, STORE, USAGE, VERSION};
pub use read::ArchiveError;
pub use restore::{RestoreError, Restored, UNFINISHED, continued, restore, settled};
pub use verification::Verification;
pub use write::{Sources, WriteError, write};
