//! The container lane's file operations. They change no file, end by the deadline, and hold an amount of memory that does not grow with
//! the tree.

mod file;
mod gitignore;
mod glob;
mod grep;
mod helpers;
mod ignores;
mod list;
mod location;
mod pattern;
mod search;
mod spelling;
mod stream;
mod text;
mod transfer;
mod walk;

pub use file::{read, read_at_once};
pub use glob::glob;
pub use grep::grep;
pub use helpers::{take_helpers_time, thread_time};
pub use list::list;
pub use transfer::{PIECE as TRANSFER_PIECE, send};

#[cfg(test)]
mod scene;
#[cfg(test)]
mod tests;
