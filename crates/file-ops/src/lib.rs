#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "archive")]
pub mod archive;
#[cfg(feature = "read")]
mod cancel;
#[cfg(feature = "read")]
mod read;
#[cfg(feature = "write")]
mod write;

#[cfg(feature = "read")]
pub use cancel::Cancel;
#[cfg(feature = "read")]
pub use read::{TRANSFER_PIECE, glob, grep, list, read, read_at_once, send, take_helpers_time, thread_time};
#[cfg(feature = "write")]
pub use write::{
    Go, Recovered, delete, edit, patch, preview_delete, preview_edit, preview_patch, preview_write, recover,
    remove_staged, sweep_staged, write,
};
