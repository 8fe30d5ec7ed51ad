//! Limits of connections, sessions and messages.

use std::time::Duration;

/// Largest message that is accepted, bytes.
pub(super) const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// Settings that an operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Accepted values of `Host`: names, or `name:port`.
    pub hosts: Vec<String>,
    /// Accepted values of `Origin`: `scheme://host:port`; the port may be `*`.
    pub origins: Vec<String>,
    /// Most connections at the same time. An address has at most three quarters of them, the runs of one principal half, and one
    /// run an eighth.
    pub connections: usize,
    /// Most sessions of one run. For a further one, the session that was idle longest ends.
    pub sessions_per_run: usize,
    /// Time without a message after which a session ends.
    pub session_idle_timeout: Duration,
    /// The dialect, which gives the tools their names and shapes.
    pub dialect: String,
}
