//! The program in its jail, in front of a steered network namespace. The tests need root, as the daemon does.
#![allow(clippy::unwrap_used, clippy::expect_used)] // also outside of test functions

mod bulk;
mod dns;
mod ech;
mod handed;
mod http;
mod opened;
mod process;
mod server;
mod support;
mod tcp;
mod tls;
