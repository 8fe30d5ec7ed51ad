//! Most at once, how much there is, and what is said when it is too much.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// What a profile lets run at the same time. Serialised, it is a policy section again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Caps {
    /// Calls of one run.
    pub run: u32,
    /// Calls of one principal, all its runs together. As many of them may wait.
    pub principal: u32,
    /// Calls of one run that wait; 0: none does.
    pub waiting: u32,
    /// Longest that one waits, seconds; 0: none does.
    pub wait_s: u64,
}

/// What holds for a profile that says nothing.
pub(crate) const STRICT_CAPS: Caps = Caps { run: 8, principal: 64, waiting: 64, wait_s: 30 };

impl Caps {
    /// Longest that a call waits.
    pub fn wait(&self) -> Duration {
        Duration::from_secs(self.wait_s)
    }
}

/// What the daemon lets run at the same time, whatever profiles say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Calls of all runs.
    pub running: u32,
    /// Calls of all runs that wait.
    pub waiting: u32,
}

/// Whose calls are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// Those of one run.
    Run,
    /// Those of one principal.
    Principal,
    /// All calls of the daemon.
    Daemon,
}

impl Together {
    /// As in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Principal => "principal",
            Self::Daemon => "daemon",
        }
    }
}

/// Calls that run, and calls that wait to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub running: u32,
    /// That wait for a place.
    pub waiting: u32,
}

/// Whether a call may be turned away because the line is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The call may be turned away.
    Ordinary,
    /// A reviewer has consented to it: it waits however long the line is, and whatever the profile says. There are no
    /// more of these than may wait for reviewers.
    Consented,
}

/// There is no place, and the call does not wait, or not any longer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// What is full; of several the narrowest.
    pub scope: Together,
    /// How full, this call left out.
    pub count: Count,
    /// Most that may run.
    pub limit: u32,
    /// An estimate, [`super`] says of what.
    pub retry_after: Duration,
}

/// What an agent can do something with.
impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, count: Count { running, waiting }, limit: _, retry_after } = self;
        let (whose, instead) = match scope {
            Together::Run => ("of this run", ", or make fewer calls at the same time"),
            Together::Principal => ("of all agents of one principal", ""),
            Together::Daemon => ("of all runs of this daemon", ""),
        };
        let seconds = retry_after.as_millis().div_ceil(1_000);
        write!(
            f,
            "too many calls at once: {running} calls {whose} run already and {waiting} wait; try again in about \
             {seconds} s{instead}"
        )
    }
}
