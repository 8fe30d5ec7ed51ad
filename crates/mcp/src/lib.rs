#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
// SEP-2577 (MCP 2026-07-28) deprecates logging, but clients of older revisions use it.
#![allow(deprecated)]

mod answer;
mod api;
mod approver;
mod bridge;
mod call;
mod changes;
mod elicit;
pub mod http;
mod log;
mod progress;
mod resources;
mod stdio;
mod token;
mod tools;
mod uri;
mod waiting;

pub use api::RunClient;
pub use api_access::{Api, Broken, api};
pub use approver::Approver;
pub use bridge::Bridge;
pub use stdio::{serve, serve_stdio};
pub use token::{BadToken, RunToken};
