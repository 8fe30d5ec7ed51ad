//! The private protocol of the two lanes: framing, conversions, and the daemon-side client.
//!
//! `coffer-agent` and `coffer-hand` speak `cofferdam.worker.v1` with `cofferd`: an operation in, output and an outcome
//! out, many in flight on one stream. Both ends are of one release; whatever a worker sends is hostile all the same.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

#[cfg(feature = "client")]
pub mod attended;
#[cfg(feature = "client")]
pub mod client;
pub mod convert;
pub mod frame;
pub mod terminal;

/// Version of the protocol; both sides must say the same in their Hello.
pub const PROTOCOL: u32 = 1;
