//! The Model Context Protocol in front of the API: a client of it that carries one run's token, and can do nothing more than
//! that token can.
//!
//! ```text
//!  MCP client ─ stdio ─► coffer mcp ─┐                       ┌─► cofferd, over its Unix socket
//!                                    ├─► Bridge ─► RunClient ┤
//!  MCP client ─ HTTP ──► cofferd ────┘                       └─► the same services, in the same process
//! ```
//!
//! Nothing is decided here. Tools, their schemas and what a model sees of a result come from `ListTools` and from the
//! dialects' renderings; each `tools/call` and each `resources/read` is a call as any other, under permission, limits,
//! approvals and on record. What a client sends is hostile: it is parsed by `rmcp`, bounded in size before, and passed on as
//! text.
//!
//! **Who may approve.** A run's token never can. So a client's answer to an elicitation decides nothing, unless whoever
//! started the bridge gave it an [`Approver`]: a second connection, whose identity is its own and which the daemon asks for
//! the approver's role as it asks everybody. Over HTTP there is none.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
// Logging is deprecated by SEP-2577 (MCP 2026-07-28), and what clients of older revisions have.
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

pub use api::{Api, Broken, RunClient, api};
pub use approver::Approver;
pub use bridge::Bridge;
pub use stdio::{serve, serve_stdio};
pub use token::{BadToken, RunToken};
