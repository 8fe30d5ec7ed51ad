//! How a command ended, for scripts.

use std::process::ExitCode;

/// The exit codes; documented in `coffer --help`, never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok = 0,
    /// The tool ran and failed, the daemon could not do it, or a check found something wrong.
    Failed = 1,
    /// The command line or the request is malformed.
    Usage = 2,
    /// Refused: by permission, policy, rate limit or a human.
    Denied = 3,
    /// The call waits for an approval.
    AwaitingApproval = 4,
    /// The daemon cannot be reached.
    Unreachable = 5,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}
