//! Tool calls that do not form an operation.

use jail::{Mount, PathRefusal};
use operations::{Malformed, Reason, ToolFailure};
use thiserror::Error;

/// Reason for which a model's tool call was not understood.
///
/// As a [`ToolFailure`] it is rendered like any other, so that the model can correct the call.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct ParseFailure {
    /// `NOT_FOUND` for an unknown tool, `SANDBOX_VIOLATION` for a path, `COMMAND_NOT_ALLOWED`, `INVALID_ARGUMENT`.
    pub reason: Reason,
    /// Description of the error and of valid values, in the dialect's own names.
    pub message: String,
    /// The argument at fault, as the dialect calls it.
    pub field: Option<String>,
    /// For a refused path: `mount`, `path` and `refusal`, as far as known.
    pub details: Vec<(&'static str, String)>,
}

impl ParseFailure {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into(), field: None, details: Vec::new() }
    }

    /// Describes an invalid argument `field`; `message` continues after its name.
    pub(crate) fn argument(field: &str, message: impl AsRef<str>) -> Self {
        let message = format!("{field}: {}", message.as_ref());
        Self { field: Some(field.to_owned()), ..Self::new(Reason::InvalidArgument, message) }
    }

    /// Describes an argument `field` that is, or holds, a refused path.
    pub(crate) fn path(field: &str, refusal: &PathRefusal) -> Self {
        let (mount, path) = place(refusal);
        let facts = [("mount", mount.map(Mount::alias)), ("path", path), ("refusal", Some(refusal.reason()))];
        let details = facts.into_iter().filter_map(|(name, fact)| Some((name, fact?.to_owned())));
        Self {
            field: Some(field.to_owned()),
            details: details.collect(),
            ..Self::new(Reason::SandboxViolation, refusal.to_string())
        }
    }

    /// Converts an error of validation. The dialect calls the argument `field`.
    pub(crate) fn malformed(field: &str, malformed: &Malformed) -> Self {
        match &malformed.refusal {
            Some(refusal) => Self::path(field, refusal),
            None => Self { reason: malformed.reason, ..Self::argument(field, &malformed.message) },
        }
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.details.push((name, value.into()));
        self
    }
}

impl From<ParseFailure> for ToolFailure {
    fn from(failure: ParseFailure) -> Self {
        let field = failure.field.map(|field| ("field", field));
        let details = failure.details.into_iter().chain(field);
        let details = details.map(|(name, value)| (name.to_owned(), value)).collect();
        Self { details, ..Self::new(failure.reason, failure.message) }
    }
}

/// Returns the mount and the path in a refusal, as far as it has them.
fn place(refusal: &PathRefusal) -> (Option<Mount>, Option<&str>) {
    match refusal {
        PathRefusal::Empty => (None, None),
        PathRefusal::UnknownMount { given }
        | PathRefusal::AbsoluteOutside { given }
        | PathRefusal::Windows { given } => (None, Some(given)),
        PathRefusal::NulByte { mount }
        | PathRefusal::PathTooLong { mount }
        | PathRefusal::ComponentTooLong { mount }
        | PathRefusal::NotMounted { mount } => (Some(*mount), None),
        PathRefusal::ParentSegment { mount, path } | PathRefusal::ReadOnlyMount { mount, path } => {
            (Some(*mount), Some(path))
        }
        PathRefusal::GitInternals { path }
        | PathRefusal::GitGuarded { path }
        | PathRefusal::PackageBinaries { path, .. }
        | PathRefusal::RunLog { path }
        | PathRefusal::System { path }
        | PathRefusal::InMount { path }
        | PathRefusal::Denied { path }
        | PathRefusal::NeedsConsent { path }
        | PathRefusal::ReservedName { path } => (None, Some(path)),
    }
}
