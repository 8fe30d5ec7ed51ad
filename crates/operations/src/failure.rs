//! The one table that turns an error of the jail into a failure with a stable reason.
//!
//! The jail's own messages are already meant for agents: short, escaped, and with paths as the agent knows them.

use jail::{AccessError, CommitError, OpenError, OpenErrorKind, PathRefusal, RemoveError, WriteError};

use crate::{Reason, ToolFailure};

/// Detail `limit` of a write for which a file system, a quota of it or a limit of sizes left no space.
pub const FILE_SYSTEM: &str = "file-system";

impl From<PathRefusal> for ToolFailure {
    fn from(refusal: PathRefusal) -> Self {
        let reason = if refusal.is_by_rule() { Reason::PermissionDenied } else { Reason::SandboxViolation };
        Self::new(reason, refusal.to_string()).with("refusal", refusal.reason())
    }
}

impl From<OpenError> for ToolFailure {
    fn from(error: OpenError) -> Self {
        let failure = Self::new(reason(&error.kind), error.to_string());
        if matches!(error.kind, OpenErrorKind::NoSpace) {
            failure.with("limit", FILE_SYSTEM)
        } else {
            failure
        }
    }
}

impl From<AccessError> for ToolFailure {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Refused(refusal) => refusal.into(),
            AccessError::Open(error) => error.into(),
        }
    }
}

impl From<WriteError> for ToolFailure {
    fn from(error: WriteError) -> Self {
        let reason = match error {
            WriteError::Open(error) => return error.into(),
            WriteError::Exists { .. } | WriteError::Changed { .. } | WriteError::Interfered { .. } => {
                Reason::PreconditionFailed
            }
            WriteError::NotDurable { .. } => Reason::Internal,
        };
        Self::new(reason, error.to_string())
    }
}

impl From<CommitError> for ToolFailure {
    fn from(error: CommitError) -> Self {
        let message = error.to_string();
        let left: Vec<String> = error.left.iter().map(ToString::to_string).collect();
        let failure = Self { message, ..error.cause.into() };
        if left.is_empty() { failure } else { failure.with("not_restored", left.join("\n")) }
    }
}

impl From<RemoveError> for ToolFailure {
    fn from(error: RemoveError) -> Self {
        let (reason, hint) = match error {
            RemoveError::Open(error) => return error.into(),
            RemoveError::NotEmpty { .. } => {
                (Reason::PreconditionFailed, "; delete its content first (hidden names, too)")
            }
            RemoveError::Changed { .. } => (Reason::PreconditionFailed, ", so it is not deleted; look again"),
            RemoveError::NotDurable { .. } => (Reason::Internal, ""),
        };
        Self::new(reason, format!("{error}{hint}"))
    }
}

fn reason(kind: &OpenErrorKind) -> Reason {
    match kind {
        kind if kind.is_violation() => Reason::SandboxViolation,
        OpenErrorKind::NotFound => Reason::NotFound,
        OpenErrorKind::NotADirectory
        | OpenErrorKind::IsADirectory
        | OpenErrorKind::Inexpressible
        | OpenErrorKind::NameTooLong => Reason::InvalidArgument,
        OpenErrorKind::PermissionDenied | OpenErrorKind::ReadOnly => Reason::PermissionDenied,
        OpenErrorKind::Exists => Reason::AlreadyExists,
        OpenErrorKind::NoSpace => Reason::WriteLimit,
        // The content differs from the description in its call.
        OpenErrorKind::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Reason::PreconditionFailed
        }
        OpenErrorKind::TooManyRetries => Reason::Overloaded,
        _ => Reason::Internal,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use jail::{FileKind, SandboxPath};

    use super::*;

    #[test]
    fn escapes_are_violations_and_failures_are_not() {
        for (kind, expected) in [
            (OpenErrorKind::Escapes, Reason::SandboxViolation),
            (OpenErrorKind::NotRegular(FileKind::Fifo), Reason::SandboxViolation),
            (OpenErrorKind::MountPoint, Reason::SandboxViolation),
            (OpenErrorKind::NotFound, Reason::NotFound),
            (OpenErrorKind::IsADirectory, Reason::InvalidArgument),
            (OpenErrorKind::NoSpace, Reason::WriteLimit),
            (OpenErrorKind::Io(io::ErrorKind::Other.into()), Reason::Internal),
        ] {
            let failure = ToolFailure::from(OpenError { path: "@project/a".to_owned(), kind });
            assert_eq!(failure.reason, expected, "{failure:?}");
            assert!(failure.message.starts_with("@project/a: "), "{failure:?}");
        }
    }

    #[test]
    fn a_refusal_names_its_own_reason() {
        let failure = ToolFailure::from(SandboxPath::parse("a/../b").unwrap_err());
        assert_eq!(failure.reason, Reason::SandboxViolation);
        assert_eq!(failure.details["refusal"], "parent_segment");
    }
}
