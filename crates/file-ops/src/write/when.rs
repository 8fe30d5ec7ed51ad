//! Delays an effect until it is permitted. Everything possible is prepared before, and the examined state is checked again afterwards.

use jail::{CommitError, WriteError};
use operations::{OpResult, Outcome, Reason, ToolFailure};

/// Attempts to change a file that another process keeps changing, before the call gives up.
const MAX_ATTEMPTS: u32 = 50;

/// Waits until the effect is permitted. After an error it never is.
pub type Go<'g> = &'g mut dyn FnMut() -> Result<(), ToolFailure>;

/// Reason for which nothing was done.
#[derive(Debug)]
pub(super) enum Undone {
    Failed(ToolFailure),
    /// The file has changed since it was examined.
    Stale,
}

impl From<ToolFailure> for Undone {
    fn from(failure: ToolFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<WriteError> for Undone {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Changed { .. } => Self::Stale,
            error => Self::Failed(error.into()),
        }
    }
}

impl From<CommitError> for Undone {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError { cause: WriteError::Changed { .. }, left, undone: true } if left.is_empty() => {
                Self::Stale
            }
            error => Self::Failed(error.into()),
        }
    }
}

impl Undone {
    pub(super) fn failure(self) -> ToolFailure {
        match self {
            Self::Failed(failure) => failure,
            Self::Stale => ToolFailure::new(
                Reason::PreconditionFailed,
                "another process changed the file at each attempt, so the call changed nothing; try again",
            ),
        }
    }
}

/// Attempts the change, and starts again if the file has changed since it was examined.
///
/// Calls that change one file take turns. So only a command, or a second name of the file, can interfere. Each attempt fails because
/// another change has succeeded.
pub(super) fn when(
    mut attempt: impl FnMut(Option<Go<'_>>) -> Result<OpResult, Undone>,
    go: Option<Go<'_>>,
) -> Outcome {
    let mut done = attempt(go);
    for _ in 1..MAX_ATTEMPTS {
        let Err(Undone::Stale) = done else { break };
        done = attempt(None);
    }
    done.map_err(Undone::failure)
}
