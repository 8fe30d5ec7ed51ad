//! The host lane's file operations. Each is worked out in full before anything is changed, so that a preview and the
//! change itself cannot disagree, and then takes effect with one rename or not at all.

mod diff;
mod file;
mod place;

pub use file::{preview_write, write};
