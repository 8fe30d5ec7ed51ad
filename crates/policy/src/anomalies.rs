//! Settings of the anomaly rules: data only. The daemon runs the rules, alongside the calls.

use std::collections::BTreeMap;

use serde::Serialize;

/// A rule over the record. The set is closed: a policy changes the setting of each rule and adds none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyRule {
    /// More calls than usual (seed 001).
    Spike,
    /// Most of the last calls failed (seed 001).
    RepeatedFailures,
    /// A file was read, written and deleted (seed 001).
    ReadWriteDelete,
    /// A read, a write and a deletion within a few calls, of any files (seed 001).
    ReadWriteDeleteBurst,
    /// An agent was granted a permission and ran a command (seed 001).
    GrantThenExec,
    /// A file that looks like a secret was read, and a command was run.
    SecretThenExec,
    /// Many calls were denied.
    Denials,
    /// Denied commands were tried.
    DeniedCommands,
    /// Paths outside the run's reach were tried.
    EscapeAttempts,
    /// Operations were tried that the agent does not hold (seed 001).
    PermissionEscalation,
    /// Calls continued over a rate limit (seed 001).
    RateLimitAbuse,
    /// The same call was repeated.
    Loop,
    /// A run has used up its quota of the daemon's disk.
    DiskQuota,
    /// The daemon's disk has little space left.
    DiskLow,
    /// A run has sent much to hosts outside.
    EgressVolume,
    /// A file that looks like a secret was read, and the run connected to a host for the first time.
    EgressAfterSecret,
    /// Connections of a run to many different hosts were refused.
    EgressRefusals,
    /// A request had a placeholder of a secret where it is worth nothing.
    PlaceholderElsewhere,
    /// A budget for models is used up to 80 %.
    ModelBudget,
}

impl AnomalyRule {
    /// All rules, in the order of the documentation.
    pub const ALL: [Self; 19] = [
        Self::Spike,
        Self::RepeatedFailures,
        Self::ReadWriteDelete,
        Self::ReadWriteDeleteBurst,
        Self::GrantThenExec,
        Self::SecretThenExec,
        Self::Denials,
        Self::DeniedCommands,
        Self::EscapeAttempts,
        Self::PermissionEscalation,
        Self::RateLimitAbuse,
        Self::Loop,
        Self::DiskQuota,
        Self::DiskLow,
        Self::EgressVolume,
        Self::EgressAfterSecret,
        Self::EgressRefusals,
        Self::PlaceholderElsewhere,
        Self::ModelBudget,
    ];

    /// Returns the id, which policy, record and API use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Spike => "spike",
            Self::RepeatedFailures => "repeated_failures",
            Self::ReadWriteDelete => "read_write_delete",
            Self::ReadWriteDeleteBurst => "read_write_delete_burst",
            Self::GrantThenExec => "grant_then_exec",
            Self::SecretThenExec => "secret_then_exec",
            Self::Denials => "denials",
            Self::DeniedCommands => "denied_commands",
            Self::EscapeAttempts => "escape_attempts",
            Self::PermissionEscalation => "permission_escalation",
            Self::RateLimitAbuse => "rate_limit_abuse",
            Self::Loop => "loop",
            Self::DiskQuota => "disk_quota",
            Self::DiskLow => "disk_low",
            Self::EgressVolume => "egress_volume",
            Self::EgressAfterSecret => "egress_after_secret",
            Self::EgressRefusals => "egress_refusals",
            Self::PlaceholderElsewhere => "placeholder_elsewhere",
            Self::ModelBudget => "model_budget",
        }
    }

    /// Returns the rule with this id.
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == id)
    }

    /// Returns the setting that applies if the policy has none.
    pub fn default_setting(self) -> AnomalySetting {
        #[allow(clippy::match_same_arms)] // a table
        let (threshold, window_s, severity) = match self {
            Self::Spike => (50, 300, Severity::Medium),
            Self::RepeatedFailures => (8, 600, Severity::Low),
            Self::ReadWriteDelete => (1, 600, Severity::Medium),
            Self::ReadWriteDeleteBurst => (3, 600, Severity::Low),
            Self::GrantThenExec => (1, 60, Severity::Low),
            Self::SecretThenExec => (1, 120, Severity::Medium),
            Self::Denials => (20, 600, Severity::Medium),
            Self::DeniedCommands => (10, 600, Severity::Medium),
            Self::EscapeAttempts => (5, 600, Severity::High),
            Self::PermissionEscalation => (5, 600, Severity::High),
            Self::RateLimitAbuse => (40, 120, Severity::Medium),
            Self::Loop => (20, 600, Severity::Medium),
            Self::DiskQuota => (1, 600, Severity::Medium),
            Self::DiskLow => (1, 600, Severity::High),
            Self::EgressVolume => (256, 600, Severity::Medium),
            Self::EgressAfterSecret => (1, 120, Severity::Medium),
            Self::EgressRefusals => (30, 60, Severity::Medium),
            Self::PlaceholderElsewhere => (1, 600, Severity::High),
            Self::ModelBudget => (1, 600, Severity::Low),
        };
        AnomalySetting {
            threshold,
            window_s,
            // Operators decide on enforcement, once they know which alerts their agents cause.
            action: AnomalyAction::Alert,
            severity,
            of: (self == Self::RepeatedFailures).then_some(10),
            factor: (self == Self::Spike).then_some(4),
        }
    }
}

/// Urgency of an alert. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth a look at some time.
    Low,
    /// Worth a look today.
    Medium,
    /// Worth a look now.
    High,
    /// Worth waking a person.
    Critical,
}

impl Severity {
    /// All severities, least first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// Returns the name used in policy, record and API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// Consequence of a rule that fires, besides the alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum AnomalyAction {
    /// No consequence and no alert: the rule is switched off.
    Off,
    /// The alert alone.
    Alert,
    /// The agent may make this many calls a minute.
    Throttle {
        per_minute: u32,
        /// Duration, seconds.
        for_s: u64,
    },
    /// Every call of the agent needs consent, even if the policy allows it.
    RequireApproval {
        /// Duration, seconds.
        for_s: u64,
    },
    /// The run is frozen until an operator acknowledges the alert.
    Freeze,
    /// The run is stopped.
    Stop,
}

impl AnomalyAction {
    /// Returns the name used in policy, record and API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Alert => "alert",
            Self::Throttle { .. } => "throttle",
            Self::RequireApproval { .. } => "require_approval",
            Self::Freeze => "freeze",
            Self::Stop => "stop",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AnomalySetting {
    /// Number of events at which the rule fires; `spike` fires above it. For `egress_volume`: MiB.
    pub threshold: u64,
    /// Length of the window, seconds.
    pub window_s: u64,
    #[serde(flatten)]
    pub action: AnomalyAction,
    pub severity: Severity,
    /// For `repeated_failures`: the number of last calls that are examined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// For `spike`: the multiple of the agent's own baseline that has to be exceeded too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<u64>,
}

impl AnomalySetting {
    /// Returns true if the rule is on.
    pub fn is_on(&self) -> bool {
        self.action != AnomalyAction::Off
    }
}

/// The setting of every rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Anomalies(pub(super) BTreeMap<AnomalyRule, AnomalySetting>);

impl Default for Anomalies {
    fn default() -> Self {
        Self(AnomalyRule::ALL.into_iter().map(|rule| (rule, rule.default_setting())).collect())
    }
}

impl Anomalies {
    pub fn of(&self, rule: AnomalyRule) -> AnomalySetting {
        self.0.get(&rule).cloned().unwrap_or_else(|| rule.default_setting())
    }

    /// Replaces the setting of one rule.
    #[must_use]
    pub fn with(mut self, rule: AnomalyRule, setting: AnomalySetting) -> Self {
        self.0.insert(rule, setting);
        self
    }
}
