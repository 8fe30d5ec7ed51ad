//! Events, which callers give to the log to be recorded.
//!
//! The order of the fields here is the order of the keys on disk (`docs/src/audit-format.md`).
//! Later versions may add new kinds and new optional fields. Readers that do not know them skip both. The existing ones must not be renamed or moved.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The daemon opened the log and began to serve.
    DaemonStarted,
    /// The daemon stopped regularly. It is the last record of this daemon.
    DaemonStopped,
    /// A torn tail was cut when the log was opened. Written by the log itself.
    LogRepaired,
    /// A policy came into force.
    PolicyLoaded,
    /// A principal reloaded the configuration, or set the level of the daemon's log. The record is on disk before it takes effect.
    ConfigurationChanged,
    /// An operator drained the node, or gave its drain another reason or deadline. The record is on disk before it takes effect.
    NodeDrained,
    /// An operator put the node into service again. The record is on disk before it takes effect.
    NodeUndrained,
    RunCreated,
    RunState,
    /// A run was not made, because of a bound of its tenant, of the node or of the daemon, or of a drain. `details.count` has the number
    /// since the last such record.
    RunRefused,
    /// A call was decided. The record is on disk before any effect.
    CallIntent,
    /// End of a call. There is exactly one for each intent.
    CallReceipt,
    /// A call waits for a human.
    ApprovalRequested,
    /// A human decided, or the time for a decision was over.
    ApprovalDecided,
    /// A human has consented to a call that needs more than one consent.
    ApprovalVoted,
    /// A consent is remembered for the rest of its run.
    ConsentRemembered,
    /// A remembered consent has ended.
    ConsentRevoked,
    /// Approvers were reminded after half of the time for a decision.
    ApprovalReminded,
    /// A worker was lost, or a companion ended or did not follow a pause of its run: [`crate::WorkerChange`].
    WorkerEvent,
    /// An upstream MCP server of a run started, could not be started, or ended.
    McpServer,
    /// The definition of an upstream server's tool changed or is not the pinned one, so the tool is withheld.
    McpToolChanged,
    /// An operator opened a terminal in a run. The record is on disk before its first byte.
    SessionOpened,
    /// End of a session. There is exactly one for each session that was opened.
    SessionClosed,
    /// An operator reads the recording of a session. The record is on disk before its first byte is sent.
    RecordingRead,
    /// A connection of a run is about to go out. The record is on disk before a byte leaves the host.
    EgressIntent,
    /// End of a connection that went out. There is one for each intent.
    EgressReceipt,
    /// Names or connections were refused, as often as `count` in `details` says.
    EgressRefused,
    /// A push of git is about to go out. The record is on disk before the request has its credential.
    GitPush,
    /// A budget for models is used up to 80 %.
    ModelBudget,
    /// A client connects to a server in a run. The record is on disk before the first byte.
    ForwardIntent,
    /// End of such a connection. There is one for each intent.
    ForwardReceipt,
    /// A command left processes running, in a profile that keeps them. Their number is in `details`.
    ProcessesLeft,
    /// End of a process that outlived its call. The record has the id of that call.
    ProcessEnded,
    /// The changes of an overlay are accepted or discarded, or a kept workspace is deleted.
    ///
    /// One record is on disk before it begins, and another one after it is over.
    WorkspaceChange,
    /// A base is complete. The record is on disk before a run can begin on it. Its digest is in `details`.
    BaseCreated,
    /// A base is about to be deleted, by a principal or by the limits of the configuration.
    BaseDeleted,
    /// A principal had a base verified, and its files are not those of which it was made.
    BaseChanged,
    /// An operator gets the files of a base. One record is on disk before the first byte, and another one after the last.
    BaseExported,
    /// An operator imports an image. One record is on disk before it begins, and another one after it is over.
    ImageImported,
    /// An operator has the engine build an image. The records are the same as for an import.
    ImageBuilt,
    /// An operator gets an image as an archive. One record is on disk before the first byte, and another one after the last.
    ImageExported,
    /// A run's bundle was created. The SHA-256 of its manifest is in `details`.
    BundleCreated,
    /// A backup is begun, and was sent or failed. One record is on disk before the first byte, and another one after the last.
    BackupCreated,
    /// This daemon continues from a backup. The record comes before all others of the daemon that are not the log's own.
    StateRestored,
    /// An operator granted a permission, or lifted a revocation. The record is on disk before it takes effect.
    PermissionGranted,
    /// An operator revoked a permission, or ended a grant. The record is on disk before it takes effect.
    PermissionRevoked,
    /// An operator created an API token. The record is on disk before the token is valid.
    TokenCreated,
    /// An operator ended an API token before its time. The record is on disk before the token becomes invalid.
    TokenRevoked,
    /// A reviewer registered a passkey. The record is on disk before it counts, and has its public key.
    PasskeyRegistered,
    /// An operator removed a passkey. The record is on disk before it takes effect.
    PasskeyRemoved,
    /// A person signed in to the web console, or out. The record of a sign-in is on disk before the session is valid.
    ConsoleSession,
    /// A reviewer's browser subscribed to notices with links to approvals, or ended that.
    PushSubscription,
    /// A client tried an action for which it has no permission.
    EscalationAttempt,
    /// A run used up its quota of the daemon's disk or has space again, or the disk itself ran low or has enough space again.
    DiskSpace,
    /// An anomaly rule fired.
    Alert,
    /// An agent is throttled for a while, or no longer. The record is on disk before it takes effect.
    AgentThrottled,
    /// A signed checkpoint that covers all records before this one. Written by the log itself.
    Checkpoint,
    /// A key that signs checkpoints from here on. Written by the log itself.
    AuditKey,
    /// The oldest segments are removed. The record is on disk before that begins. Written by the log itself.
    SegmentsRemoved,
    /// A kind of a later version. It occurs only when a log is read, and must never be written.
    #[serde(other)]
    Unknown,
}

impl Kind {
    /// Returns true if the log itself writes such records, between those of its callers.
    pub fn is_own(self) -> bool {
        matches!(self, Self::LogRepaired | Self::Checkpoint | Self::AuditKey | Self::SegmentsRemoved)
    }

    /// Returns the name on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DaemonStarted => "daemon_started",
            Self::DaemonStopped => "daemon_stopped",
            Self::LogRepaired => "log_repaired",
            Self::PolicyLoaded => "policy_loaded",
            Self::ConfigurationChanged => "configuration_changed",
            Self::NodeDrained => "node_drained",
            Self::NodeUndrained => "node_undrained",
            Self::RunCreated => "run_created",
            Self::RunState => "run_state",
            Self::RunRefused => "run_refused",
            Self::CallIntent => "call_intent",
            Self::CallReceipt => "call_receipt",
            Self::ApprovalRequested => "approval_requested",
            Self::ApprovalDecided => "approval_decided",
            Self::ApprovalVoted => "approval_voted",
            Self::ConsentRemembered => "consent_remembered",
            Self::ConsentRevoked => "consent_revoked",
            Self::ApprovalReminded => "approval_reminded",
            Self::WorkerEvent => "worker_event",
            Self::McpServer => "mcp_server",
            Self::McpToolChanged => "mcp_tool_changed",
            Self::SessionOpened => "session_opened",
            Self::SessionClosed => "session_closed",
            Self::RecordingRead => "recording_read",
            Self::EgressIntent => "egress_intent",
            Self::EgressReceipt => "egress_receipt",
            Self::EgressRefused => "egress_refused",
            Self::GitPush => "git_push",
            Self::ModelBudget => "model_budget",
            Self::ForwardIntent => "forward_intent",
            Self::ForwardReceipt => "forward_receipt",
            Self::ProcessesLeft => "processes_left",
            Self::ProcessEnded => "process_ended",
            Self::WorkspaceChange => "workspace_change",
            Self::BaseCreated => "base_created",
            Self::BaseDeleted => "base_deleted",
            Self::BaseChanged => "base_changed",
            Self::BaseExported => "base_exported",
            Self::ImageImported => "image_imported",
            Self::ImageBuilt => "image_built",
            Self::ImageExported => "image_exported",
            Self::BundleCreated => "bundle_created",
            Self::BackupCreated => "backup_created",
            Self::StateRestored => "state_restored",
            Self::PermissionGranted => "permission_granted",
            Self::PermissionRevoked => "permission_revoked",
            Self::TokenCreated => "token_created",
            Self::TokenRevoked => "token_revoked",
            Self::PasskeyRegistered => "passkey_registered",
            Self::PasskeyRemoved => "passkey_removed",
            Self::ConsoleSession => "console_session",
            Self::PushSubscription => "push_subscription",
            Self::EscalationAttempt => "escalation_attempt",
            Self::DiskSpace => "disk_space",
            Self::Alert => "alert",
            Self::AgentThrottled => "agent_throttled",
            Self::Checkpoint => "checkpoint",
            Self::AuditKey => "audit_key",
            Self::SegmentsRemoved => "segments_removed",
            Self::Unknown => "unknown",
        }
    }
}

/// The gateway's verdict on a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allow,
    /// A human has to decide first.
    Ask,
    Deny,
    /// A verdict of a later version.
    #[serde(other)]
    Unknown,
}

/// A decision of the gateway, and its basis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    pub outcome: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Reason, as a text or as a stable code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<String>,
}

impl Decision {
    /// Creates a decision without a reason.
    pub fn new(outcome: Verdict) -> Self {
        Self { outcome, rule: None, reason: None, policy_digest: None }
    }

    /// Sets the rule that decided.
    #[must_use]
    pub fn rule(mut self, rule: impl Into<String>) -> Self {
        self.rule = Some(rule.into());
        self
    }

    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sets the digest of the policy in force.
    #[must_use]
    pub fn policy_digest(mut self, digest: impl Into<String>) -> Self {
        self.policy_digest = Some(digest.into());
        self
    }
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The call did its task.
    Succeeded,
    /// The call ran, or tried to, and failed.
    Failed,
    /// The call was refused and had no effect.
    Denied,
    /// The call waits for a human. Another receipt follows.
    PendingApproval,
    /// The daemon died during the call. It is unknown whether the call had an effect.
    Interrupted,
    /// A status of a later version.
    #[serde(other)]
    Unknown,
}

impl Status {
    /// Returns the name in the log. A status of a later version is `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Denied => "denied",
            Self::PendingApproval => "pending_approval",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
        }
    }
}

/// Summary of a call's end. It never contains file contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    /// Stable reason, for example `COMMAND_NOT_ALLOWED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Exit code of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Sizes, hashes, and a redacted and truncated preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Value>,
}

impl Outcome {
    /// Creates an outcome that consists only of its status.
    pub fn new(status: Status) -> Self {
        Self { status, reason: None, message: None, exit_code: None, facts: None }
    }

    /// Sets the stable reason.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets the command's exit code.
    #[must_use]
    pub fn exit_code(mut self, code: i32) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// Sets sizes, hashes and the preview.
    #[must_use]
    pub fn facts(mut self, facts: Value) -> Self {
        self.facts = Some(facts);
        self
    }
}

/// Measured resources of a call. Values that were not measured, or that include other calls, are absent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time, user and system, in microseconds. For a command it includes all processes that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Highest resident memory of any single process, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Time that the call spent in its lane, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_us: Option<u64>,
    #[serde(default)]
    pub bytes_in: u64,
    #[serde(default)]
    pub bytes_out: u64,
}

/// An event to be recorded. Fields that do not apply are absent, also on disk.
///
/// ```
/// # use cofferdam_audit::{Decision, Event, Kind, Verdict};
/// let event = Event::new(Kind::CallIntent)
///     .run("0192f0c1-…")
///     .call("0192f0c2-…")
///     .principal("uid:1000")
///     .operation("read")
///     .input(serde_json::json!({"path": "README.md"}))
///     .decision(Decision::new(Verdict::Allow).rule("profile.review.read"));
/// # assert_eq!(event.operation.as_deref(), Some("read"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The client's own id of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// Agent for which the call is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Dialect of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Arguments of the operation, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Approval that was requested, decided or used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Duration in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Digest of the image in which the operation ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Number of secrets that were hidden in this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redactions: Option<u32>,
    /// Further data of this kind of event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// Context of the trace that the call belongs to, as W3C Trace Context writes it. The client chose the trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident => $field:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: impl Into<$type>) -> Self {
            self.$field = Some($field.into());
            self
        }
    )*};
}

impl Event {
    /// Creates an event that consists only of its kind.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            run_id: None,
            call_id: None,
            request_id: None,
            principal: None,
            agent_id: None,
            role: None,
            dialect: None,
            operation: None,
            input: None,
            decision: None,
            approval_id: None,
            outcome: None,
            duration_us: None,
            usage: None,
            image: None,
            redactions: None,
            details: None,
            traceparent: None,
        }
    }

    setters! {
        /// Sets the run to which the event belongs.
        run => run_id: String;
        /// Sets the call to which the event belongs.
        call => call_id: String;
        /// Sets the client's own id of the call.
        request => request_id: String;
        principal => principal: String;
        /// Sets the agent for which the call is made.
        agent => agent_id: String;
        role => role: String;
        /// Sets the dialect of the call.
        dialect => dialect: String;
        operation => operation: String;
        input => input: Value;
        decision => decision: Decision;
        /// Sets the approval that was requested, decided or used.
        approval => approval_id: String;
        outcome => outcome: Outcome;
        /// Sets the duration in microseconds.
        duration_us => duration_us: u64;
        usage => usage: Usage;
        /// Sets the digest of the image in which the operation ran.
        image => image: String;
        /// Sets further data of this kind of event.
        details => details: Value;
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn the_name_of_a_status_is_that_in_the_log() {
        use Status::{Denied, Failed, Interrupted, PendingApproval, Succeeded};
        for status in [Succeeded, Failed, Denied, PendingApproval, Interrupted] {
            assert_eq!(serde_json::to_value(status).unwrap(), status.name());
        }
        let later: Status = serde_json::from_str("\"of_a_later_version\"").unwrap();
        assert_eq!(later.name(), "unknown");
    }
}
