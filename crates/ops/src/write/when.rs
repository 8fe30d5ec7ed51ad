//! An effect that waits until it may come: all that can be prepared is, and what was looked at counts only if it is still so.

use jail::{CommitError, WriteError};

use crate::{OpResult, Outcome, Reason, ToolFailure};

/// Looks at a file that another changes all the time, before it is left to that one.
const MAX_ATTEMPTS: u32 = 50;

/// Waits until the effect may come. After an error it never may.
pub type Go<'g> = &'g mut dyn FnMut() -> Result<(), ToolFailure>;

/// Why nothing was done.
#[derive(Debug)]
pub(super) enum Undone {
    Failed(ToolFailure),
    /// The file has changed since the look.
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
                "the file was changed by someone else each time; no file was changed; try again",
            ),
        }
    }
}

/// Attempts it, and begins again where the file has changed since the look: as though it had begun only now.
///
/// Calls that change one file take turns, so that only others are met here: a command, or a second name of the file. Each
/// attempt fails because another's change has succeeded.
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
