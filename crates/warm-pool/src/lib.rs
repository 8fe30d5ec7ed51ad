#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(missing_docs)] // only the daemon calls it

mod demand;
mod table;

pub use table::{Bounds, Configured, Counts, Fill, Levels, Named, NoneWaits, PAUSE, Table};
