//! An effect that waits until it may come: all that can be prepared is, and what was looked at counts only if it is still so.

use jail::WriteError;

use crate::{OpResult, Outcome, Reason, ToolFailure};

/// Waits until the effect may come. After an error it never may.
pub type Go<'g> = &'g mut dyn FnMut() -> Result<(), ToolFailure>;

/// Why nothing was done.
#[derive(Debug)]
pub(super) enum Undone {
    Failed(ToolFailure),
    /// What was looked at has changed while the effect waited.
    Stale,
}

impl From<ToolFailure> for Undone {
    fn from(failure: ToolFailure) -> Self {
        Self::Failed(failure)
    }
}

impl From<WriteError> for Undone {
    fn from(error: WriteError) -> Self {
        Self::Failed(error.into())
    }
}

impl Undone {
    pub(super) fn failure(self) -> ToolFailure {
        match self {
            Self::Failed(failure) => failure,
            Self::Stale => ToolFailure::new(
                Reason::PreconditionFailed,
                "the file was changed by someone else; try again",
            ),
        }
    }
}

/// Attempts it, and begins again after `go` where the first look is stale by then: as though it had begun only now.
pub(super) fn when(
    mut attempt: impl FnMut(Option<Go<'_>>) -> Result<OpResult, Undone>,
    go: Option<Go<'_>>,
) -> Outcome {
    match attempt(go) {
        Err(Undone::Stale) => attempt(None),
        done => done,
    }
    .map_err(Undone::failure)
}
