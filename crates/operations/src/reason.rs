//! The stable reasons for which a call is refused or fails: a closed list, part of the public API.

use std::fmt;

/// Reason for which a call was refused or failed. The upper-case name is stable, and clients match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A path or name is outside of the paths that the run may access.
    SandboxViolation,
    /// Policy, role or API role do not allow the call.
    PermissionDenied,
    /// The command is on the deny list or not on the allow list.
    CommandNotAllowed,
    /// Too many calls; try again later.
    RateLimited,
    /// A reviewer denied the call.
    ApprovalDenied,
    /// No reviewer decided in time.
    ApprovalExpired,
    /// The run waits for the reviewer of another call, and this call does not wait, or no longer.
    AwaitingApproval,
    /// The call would read more than the profile allows.
    ReadLimit,
    /// The call would write more than the profile allows.
    WriteLimit,
    /// The run had no memory left, and the kernel ended the command.
    MemoryLimit,
    /// The tenant of the principal has used up one of its bounds, or the request would exceed it.
    TenantLimit,
    /// The state is not the one that the call demands: a hash differs, a file exists, text is not unique.
    PreconditionFailed,
    /// The front matter of a document is not valid YAML.
    InvalidFrontmatter,
    /// The call itself is malformed.
    InvalidArgument,
    /// No such file, run, call, approval, profile or program exists.
    NotFound,
    /// The request is for another node of the fleet, which the details name. Nothing was done; send it there.
    WrongNode,
    /// It exists already, with other content.
    AlreadyExists,
    /// The engine does not have the run's image. An operator has to import or build it.
    ImageMissing,
    /// The profile does not allow the run's image.
    ImageNotAllowed,
    /// The run's image declares a setting that no run may have.
    ImageUnusable,
    /// The deadline passed.
    TimedOut,
    /// A caller cancelled it, or its run ended.
    Cancelled,
    /// The run does not accept calls now.
    RunNotReady,
    /// The run was lost: its container or its worker ended, or no daemon could take it over. It does not come back.
    RunLost,
    /// Too much is in progress at once; try again.
    Overloaded,
    /// The daemon stops, or another one takes over; nothing was begun. Try again with the same `request_id`.
    /// A stream that ends by itself, such as the records of a log, ends with it if it is cut off.
    DaemonStopping,
    /// The node is drained and makes no runs; nothing was begun. Create the run on another node.
    NodeDrained,
    /// The audit log cannot be written, so no call is executed.
    AuditUnavailable,
    /// The container engine does not answer, as `UNAVAILABLE`, or it failed, as `INTERNAL`.
    EngineUnavailable,
    /// An upstream MCP server failed, broke its protocol, or its tool said that it failed.
    UpstreamFailed,
    /// A fault of the daemon or of the machine.
    Internal,
}

impl Reason {
    /// All reasons, in the order of the documentation.
    pub const ALL: [Self; 31] = [
        Self::SandboxViolation,
        Self::PermissionDenied,
        Self::CommandNotAllowed,
        Self::RateLimited,
        Self::ApprovalDenied,
        Self::ApprovalExpired,
        Self::AwaitingApproval,
        Self::ReadLimit,
        Self::WriteLimit,
        Self::MemoryLimit,
        Self::TenantLimit,
        Self::PreconditionFailed,
        Self::InvalidFrontmatter,
        Self::InvalidArgument,
        Self::NotFound,
        Self::WrongNode,
        Self::AlreadyExists,
        Self::ImageMissing,
        Self::ImageNotAllowed,
        Self::ImageUnusable,
        Self::TimedOut,
        Self::Cancelled,
        Self::RunNotReady,
        Self::RunLost,
        Self::Overloaded,
        Self::DaemonStopping,
        Self::NodeDrained,
        Self::AuditUnavailable,
        Self::EngineUnavailable,
        Self::UpstreamFailed,
        Self::Internal,
    ];

    /// Returns the stable name, such as `SANDBOX_VIOLATION`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SandboxViolation => "SANDBOX_VIOLATION",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::CommandNotAllowed => "COMMAND_NOT_ALLOWED",
            Self::RateLimited => "RATE_LIMITED",
            Self::ApprovalDenied => "APPROVAL_DENIED",
            Self::ApprovalExpired => "APPROVAL_EXPIRED",
            Self::AwaitingApproval => "AWAITING_APPROVAL",
            Self::ReadLimit => "READ_LIMIT",
            Self::WriteLimit => "WRITE_LIMIT",
            Self::MemoryLimit => "MEMORY_LIMIT",
            Self::TenantLimit => "TENANT_LIMIT",
            Self::PreconditionFailed => "PRECONDITION_FAILED",
            Self::InvalidFrontmatter => "INVALID_FRONTMATTER",
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::NotFound => "NOT_FOUND",
            Self::WrongNode => "WRONG_NODE",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::ImageMissing => "IMAGE_MISSING",
            Self::ImageNotAllowed => "IMAGE_NOT_ALLOWED",
            Self::ImageUnusable => "IMAGE_UNUSABLE",
            Self::TimedOut => "TIMED_OUT",
            Self::Cancelled => "CANCELLED",
            Self::RunNotReady => "RUN_NOT_READY",
            Self::RunLost => "RUN_LOST",
            Self::Overloaded => "OVERLOADED",
            Self::DaemonStopping => "DAEMON_STOPPING",
            Self::NodeDrained => "NODE_DRAINED",
            Self::AuditUnavailable => "AUDIT_UNAVAILABLE",
            Self::EngineUnavailable => "ENGINE_UNAVAILABLE",
            Self::UpstreamFailed => "UPSTREAM_FAILED",
            Self::Internal => "INTERNAL",
        }
    }

    /// Returns the reason with this stable name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Reason;

    #[test]
    fn names_are_distinct_and_parse_back() {
        for (i, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(Reason::parse(reason.as_str()), Some(reason));
            assert_eq!(Reason::ALL.iter().position(|other| other.as_str() == reason.as_str()), Some(i));
        }
        assert_eq!(Reason::parse("no such"), None);
    }
}
