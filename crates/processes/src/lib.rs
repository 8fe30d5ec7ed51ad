#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // the daemon alone calls it

mod attach;
mod cut;
mod disk;
mod ended;
mod input;
mod left;
mod leftovers;
mod output;
mod owner;
mod part;
mod process;
mod reattach;
mod session;
mod shared;
mod stop_rule;
mod table;
mod talk;

pub use attach::Events;
pub use disk::FORMAT;
pub use left::{LeftBy, end_left};
pub use leftovers::Leftovers;
pub use part::Part;
pub use process::Process;
pub use shared::Settings;
pub use stop_rule::StopRule;
pub use table::Processes;
