#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
#![allow(missing_docs)] // only the daemon calls it

mod log;
mod placed;

pub use log::{Location as LogLocation, prepare as prepare_log};
pub use placed::{Carried, GuestBinary, place_etc, place_worker};
