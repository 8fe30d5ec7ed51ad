//! Serves MCP over streamable HTTP.
//!
//! ```text
//!  connection ─► head (timed) ─► Host ─► token ─► slot of the run ─► body (bounded, timed) ─► the run's own endpoint ─► Bridge
//! ```
//!
//! Connections are counted by address, and by the token that they send. If there is no other space, a connection without a valid
//! token is closed for a new one. A request takes one of its run's slots before its body is read.
//!
//! A run's token decides, for each request anew, which run it is; without one a client gets nothing, not even a session. Each run
//! has a separate endpoint with separate sessions. It is created when the run's token is first sent, and ends when another token
//! replaces it or the run ends. So a session id of one run means nothing with the token of another. If a run has its maximum number
//! of sessions, the one that was idle longest ends.
//!
//! `Host`, before anything else, and `Origin` are checked against a list (DNS rebinding, CVE-2025-66414 and similar ones), although
//! no page has a token.
//!
//! This speaks plain HTTP/1.1: for this host, or behind a proxy that does TLS.

mod access;
mod endpoint;
mod held;
mod host;
mod runs;
mod serve;
mod sessions;
mod settings;

pub use access::{Access, Opened};
pub use serve::serve;
pub use settings::Settings;
