//! Clients that others have written.

#![allow(clippy::unwrap_used, clippy::expect_used)] // what cannot be set up fails its test

mod grpcurl;
mod readme;
mod tool_lists;
