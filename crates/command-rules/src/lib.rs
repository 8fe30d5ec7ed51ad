#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only this workspace calls it, and no comment repeats a name

mod by_kind;
mod code;
mod effects;
mod env;
mod inner;
mod named;
mod read_only;
mod script;
mod see_through;
mod shell;
mod unseen;
mod wrapper;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use effects::{deletes, only_reads};
pub use named::named_files;
pub use read_only::{DoesMore, read_only};
pub use see_through::{Seen, TooIntricate, argv};
pub use unseen::Unseen;
