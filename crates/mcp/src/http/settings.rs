//! What connections, sessions and messages are held to.

use std::time::Duration;

/// Largest message taken, bytes.
pub(super) const LARGEST_BODY: usize = 4 * 1024 * 1024;

/// What an operator may choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What `Host` may be: names, or `name:port`.
    pub hosts: Vec<String>,
    /// What `Origin` may be where there is one: `scheme://host:port`, the port perhaps `*`.
    pub origins: Vec<String>,
    /// Connections at the same time. Of them an address has at most three quarters, the runs of one principal half, and one run an eighth.
    pub connections: usize,
    /// Sessions of one run at the same time; beyond, the one that was idle longest ends.
    pub sessions_per_run: usize,
    /// A session without a message for so long is over.
    pub session_idle_timeout: Duration,
    /// In which names and shapes tools are offered.
    pub dialect: String,
}
