//! Limits of a profile on concurrent calls.

use std::time::Duration;

use serde::Serialize;

/// Limits of a profile on calls at the same time. Serialised, they are a policy section again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Caps {
    /// Most calls of one run.
    pub run: u32,
    /// Most calls of one principal in all its runs. As many of them may wait.
    pub principal: u32,
    /// Most calls of one run that wait. 0 lets none wait.
    pub waiting: u32,
    /// Longest time that a call waits, seconds. 0 lets none wait.
    pub wait_s: u64,
}

/// Limits of a profile that does not set any.
pub(crate) const STRICT_CAPS: Caps = Caps { run: 8, principal: 64, waiting: 64, wait_s: 30 };

impl Caps {
    /// Returns the longest time that a call waits.
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_s)
    }
}
