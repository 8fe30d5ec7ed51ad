//! The host lane's file operations.
//!
//! Each is computed in full before any file is changed, so that a preview and the change itself cannot disagree. It then takes effect with
//! one rename or not at all.

mod change;
mod delete;
mod diff;
mod direct;
mod edit;
mod file;
mod location;
mod nearest;
mod newline;
mod patch;
mod recover;
mod trash;
mod unpack;
mod upload;
mod when;

pub use delete::{delete, preview_delete};
pub use edit::{edit, preview_edit};
pub use file::{preview_write, write};
pub use patch::{patch, preview_patch};
pub use recover::{Recovered, recover};
pub use upload::{remove_staged, sweep_staged};
pub use when::Go;

#[cfg(test)]
mod tests;
