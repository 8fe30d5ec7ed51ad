//! What a caller wants recorded.
//!
//! The order of the fields here is the order of the keys on disk (`FORMAT.md`). New kinds and new optional fields may
//! be added in later versions; both are skipped by readers that do not know them. Nothing here may be renamed or moved.

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// The daemon opened the log and serves.
    DaemonStarted,
    /// The daemon stopped in good order; its last record.
    DaemonStopped,
    /// A torn tail was cut when the log was opened. Written by the log itself.
    LogRepaired,
    /// A policy came into force.
    PolicyLoaded,
    RunCreated,
    RunState,
    /// A call was decided on; on disk before any effect.
    CallIntent,
    /// How a call ended; exactly one for each intent.
    CallReceipt,
    /// A call waits for a human.
    ApprovalRequested,
    /// A human, or the clock, decided.
    ApprovalDecided,
    /// A human has consented to a call that needs more than one consent.
    ApprovalVoted,
    /// A consent is remembered for the rest of its run.
    ConsentRemembered,
    /// A consent that was remembered has ended.
    ConsentRevoked,
    /// Approvers were reminded at half-time.
    ApprovalReminded,
    /// A lane's worker started, died or was restarted.
    WorkerEvent,
    /// An upstream MCP server of a run started, could not be had, or ended.
    McpServer,
    /// The definition of an upstream server's tool is not what it was, or not the pinned one: it is withheld.
    McpToolChanged,
    /// An operator sat down at a terminal in a run; on disk before its first byte.
    SessionOpened,
    /// How a session ended; exactly one for each that was opened.
    SessionClosed,
    /// Processes that a command left running, in a profile that keeps them; the details have their number.
    ProcessesLeft,
    /// How a process ended that outlived its call, whose id it has.
    ProcessEnded,
    /// The changes of an overlay are accepted or discarded, or a kept workspace is deleted; on disk before that begins,
    /// and again when it is over.
    WorkspaceChange,
    /// An operator imports an image; on disk before that begins, and again when it is over.
    ImageImported,
    /// An operator has the engine build an image; the same.
    ImageBuilt,
    /// A run's bundle was made: its manifest's SHA-256 is in `details`.
    BundleCreated,
    /// An operator gave a permission, or lifted a revocation; on disk before it counts.
    PermissionGranted,
    /// An operator took a permission, or ended a grant; on disk before it counts.
    PermissionRevoked,
    /// An operator made an API token; on disk before it counts.
    TokenCreated,
    /// An operator ended an API token before its time; on disk before it opens nothing.
    TokenRevoked,
    /// Somebody tried what only others may.
    EscalationAttempt,
    /// A run has used up its quota of the daemon's disk or has room again; or the disk itself has little room, or enough.
    DiskSpace,
    /// An anomaly rule fired.
    Alert,
    /// An agent may do less for a while, or no longer so; on disk before it is in force.
    AgentThrottled,
    /// A signed checkpoint over all records before this one. Written by the log itself.
    Checkpoint,
    /// A key that signs checkpoints from here on. Written by the log itself.
    AuditKey,
    /// The oldest segments are removed; on disk before that begins. Written by the log itself.
    SegmentsRemoved,
    /// A kind of a later version: met when reading, never to be written.
    #[serde(other)]
    Unknown,
}

impl Kind {
    /// Whether the log writes such records by itself, between those of its users.
    pub fn is_own(self) -> bool {
        matches!(self, Self::LogRepaired | Self::Checkpoint | Self::AuditKey | Self::SegmentsRemoved)
    }

    /// The name on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DaemonStarted => "daemon_started",
            Self::DaemonStopped => "daemon_stopped",
            Self::LogRepaired => "log_repaired",
            Self::PolicyLoaded => "policy_loaded",
            Self::RunCreated => "run_created",
            Self::RunState => "run_state",
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
            Self::ProcessesLeft => "processes_left",
            Self::ProcessEnded => "process_ended",
            Self::WorkspaceChange => "workspace_change",
            Self::ImageImported => "image_imported",
            Self::ImageBuilt => "image_built",
            Self::BundleCreated => "bundle_created",
            Self::PermissionGranted => "permission_granted",
            Self::PermissionRevoked => "permission_revoked",
            Self::TokenCreated => "token_created",
            Self::TokenRevoked => "token_revoked",
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

/// What the gateway said to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Allow,
    /// A human is asked first.
    Ask,
    Deny,
    /// A verdict of a later version.
    #[serde(other)]
    Unknown,
}

/// A decision of the gateway, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Allow, ask or deny.
    pub outcome: Verdict,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why, in words or as a stable reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_digest: Option<String>,
}

impl Decision {
    /// A decision with nothing said about why.
    pub fn new(outcome: Verdict) -> Self {
        Self { outcome, rule: None, reason: None, policy_digest: None }
    }

    /// Names the rule that decided.
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

    /// Names the policy in force.
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
    /// It did what it was asked.
    Succeeded,
    /// It ran, or tried to, and failed.
    Failed,
    /// It was refused; nothing happened.
    Denied,
    /// It waits for a human; another receipt follows.
    PendingApproval,
    /// The daemon died in the middle; whether there was an effect is not known.
    Interrupted,
    /// A status of a later version.
    #[serde(other)]
    Unknown,
}

/// A call's end in short: never file contents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    /// The stable reason, for example `COMMAND_NOT_ALLOWED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The command's own exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Sizes, hashes and a redacted, truncated preview.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facts: Option<Value>,
}

impl Outcome {
    /// An end with nothing more said.
    pub fn new(status: Status) -> Self {
        Self { status, reason: None, message: None, exit_code: None, facts: None }
    }

    /// Gives the stable reason.
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

    /// Adds the command's exit code.
    #[must_use]
    pub fn exit_code(mut self, code: i32) -> Self {
        self.exit_code = Some(code);
        self
    }

    /// Adds sizes, hashes, preview.
    #[must_use]
    pub fn facts(mut self, facts: Value) -> Self {
        self.facts = Some(facts);
        self
    }
}

/// What a call cost, as measured. What was not measured, or is not this call's alone, is left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Processor time, user and system, in microseconds: of a command with all that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_us: Option<u64>,
    /// Highest resident memory of any one process, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Time in its lane, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_us: Option<u64>,
    #[serde(default)]
    pub bytes_in: u64,
    #[serde(default)]
    pub bytes_out: u64,
}

/// One thing to be recorded. Fields that do not apply are left out, on disk too.
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
    /// Whom the call is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The dialect that the call came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The operation's arguments, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What the gateway said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The approval that is asked for, decided or used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// How long it took, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Digest of the image it ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// How many secrets were hidden in this record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redactions: Option<u32>,
    /// Whatever else belongs to this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
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
    /// An event with nothing but its kind.
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
        }
    }

    setters! {
        /// The run it belongs to.
        run => run_id: String;
        /// The call it belongs to.
        call => call_id: String;
        /// The client's own id of the call.
        request => request_id: String;
        principal => principal: String;
        /// Whom the call is for.
        agent => agent_id: String;
        role => role: String;
        /// The dialect that the call came in.
        dialect => dialect: String;
        operation => operation: String;
        input => input: Value;
        /// What the gateway said.
        decision => decision: Decision;
        /// The approval that is asked for, decided or used.
        approval => approval_id: String;
        outcome => outcome: Outcome;
        /// How long it took, in microseconds.
        duration_us => duration_us: u64;
        usage => usage: Usage;
        /// Digest of the image it ran in.
        image => image: String;
        /// Whatever else belongs to this kind.
        details => details: Value;
    }
}
