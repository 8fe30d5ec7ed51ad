//! MCP over streamable HTTP.
//!
//! ```text
//!  connection ─► head (timed) ─► Host ─► token ─► place of the run ─► body (bounded, timed) ─► the run's own endpoint ─► Bridge
//! ```
//!
//! Connections are counted by address, and by the token that they show. One that has shown no good token makes room for another
//! when there is no other place. A request takes one of its run's places before its body is read.
//!
//! A run's token decides which run it is, for each request anew; without one there is nothing here, not even sessions. Each run has an
//! endpoint of its own, with its own sessions, made when its token is first shown and gone when another token replaces it or the run ends: so
//! a session id of one run means nothing with the token of another. Where a run has as many sessions as it may have, the one that was idle
//! longest makes room. `Host`, before anything else, and `Origin` are held to a list (DNS
//! rebinding, CVE-2025-66414 and its like), although no page has a token.
//!
//! This speaks plain HTTP/1.1: for this host, or behind a proxy that does TLS.

mod door;
mod endpoint;
mod held;
mod host;
mod runs;
mod serve;
mod sessions;
mod settings;

pub use door::Door;
pub use serve::serve;
pub use settings::Settings;
