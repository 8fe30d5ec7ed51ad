//! The real binary, on this host instead of in a container, driven by the real client or by bare frames.

#![allow(clippy::unwrap_used, clippy::expect_used)] // helpers of tests are tests

mod commands;
mod direct;
mod ending;
mod files;
mod flow;
mod harness;
mod prepared;
mod protocol;
mod sinks;
mod terminal;
