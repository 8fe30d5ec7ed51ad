//! How a command ended, for scripts.

use std::process::ExitCode;

/// The exit codes; documented in `coffer --help`, never renumbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Ok,
    /// The tool ran and failed, the daemon could not do it, or a check found something wrong.
    Failed,
    /// The command line or the request is malformed.
    Usage,
    /// Refused: by permission, policy, rate limit or a human.
    Denied,
    /// The call waits for an approval.
    AwaitingApproval,
    /// The daemon cannot be reached.
    Unreachable,
    /// Nothing is wrong with the log, but no signature of the key that was given is in it.
    Unvouched,
    /// The exit code of a command in a run, or 128 and the number of a signal.
    Command(u8),
}

/// What `timeout(1)` ends with.
pub(crate) const TIMED_OUT: u8 = 124;

impl Exit {
    /// The same where a command's own code may stand in its place: ours are out of the way of most, as those
    /// of `docker exec` and
    /// `env` are.
    pub(crate) fn beside_a_command(self) -> Self {
        match self {
            Self::Ok | Self::Command(_) => self,
            Self::AwaitingApproval => Self::Command(123),
            Self::Failed | Self::Usage | Self::Unreachable | Self::Unvouched => Self::Command(125),
            Self::Denied => Self::Command(126),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Denied => 3,
            Exit::AwaitingApproval => 4,
            Exit::Unreachable => 5,
            Exit::Unvouched => 6,
            Exit::Command(code) => code,
        })
    }
}
