//! Exit codes, for scripts.

use std::process::ExitCode;

/// An exit code. The codes are documented in `coffer --help`, and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The command did its task.
    Ok,
    /// The tool ran and failed, the daemon could not do the task, or a check found a problem.
    Failed,
    /// The command line or the request is malformed.
    Usage,
    /// Refused because of a permission, the policy, a rate limit or a human.
    Denied,
    /// The call waits for an approval.
    AwaitingApproval,
    /// The daemon cannot be reached.
    Unreachable,
    /// The log is intact, but contains no signature of the given key.
    Unvouched,
    /// Exit code of a command in a run, or 128 plus the number of a signal.
    Command(u8),
}

/// Exit code of `timeout(1)` after a timeout.
pub const TIMED_OUT: u8 = 124;

impl Exit {
    /// Converts the code for a command of `coffer` that also passes on the exit codes of other programs.
    ///
    /// The converted codes differ from those of most programs, like the codes of `docker exec` and `env`.
    #[must_use]
    pub fn beside_a_command(self) -> Self {
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
