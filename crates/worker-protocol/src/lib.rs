#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod address;
#[cfg(feature = "client")]
pub mod client;
pub mod convert;
#[cfg(feature = "client")]
pub mod detach_on_drop;
pub mod frame;
pub mod keeper;
pub mod relay;
pub mod terminal;

/// Version of the protocol. Both sides must state the same one in their Hello.
pub const PROTOCOL: u32 = 2;
