//! The daemon's limit on concurrent calls, the number of calls, and the message when there are too many.

use std::fmt;
use std::time::Duration;

/// Limits of the daemon on calls at the same time, above the limits of profiles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Whole {
    /// Most calls of all runs.
    pub running: u32,
    /// Most calls of all runs that wait.
    pub waiting: u32,
}

/// Calls that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Together {
    /// The calls of one run.
    Run,
    /// The calls of one principal.
    Principal,
    /// All calls of the daemon.
    Daemon,
}

impl Together {
    /// Returns the name used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Principal => "principal",
            Self::Daemon => "daemon",
        }
    }
}

/// Number of calls that run, and of calls that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub running: u32,
    /// Calls that wait for a slot.
    pub waiting: u32,
}

/// Kind of call, which decides if it may be rejected when the line is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The call may be rejected.
    Ordinary,
    /// A reviewer has consented to the call, so it waits however long the line is, and whatever the profile says.
    ///
    /// The number of these calls is bounded by the limit on pending approvals.
    Consented,
}

/// No slot is free, and the call does not wait or has waited long enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Busy {
    /// The scope that is full, the narrowest if there are several.
    pub scope: Together,
    /// Calls in that scope, without this one.
    pub count: Count,
    /// Most calls that may run in that scope.
    pub limit: u32,
    /// Estimated time until there is a slot; [`super`] describes how it is made.
    pub retry_after: Duration,
}

/// A message that an agent can act on.
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
