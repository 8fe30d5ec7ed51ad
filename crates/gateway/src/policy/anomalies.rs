//! What the anomaly rules are set to: data alone. The rules themselves run in the daemon, beside the calls.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

/// A rule over what was recorded. The set is closed; a policy sets each and adds none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AnomalyRule {
    /// More calls than usual (seed 001).
    Spike,
    /// Most of the last calls failed (seed 001).
    RepeatedFailures,
    /// A file was read, written and deleted (seed 001).
    ReadWriteDelete,
    /// Reading, writing and deleting within a few calls, whatever the files (seed 001).
    ReadWriteDeleteBurst,
    /// An agent was granted something and ran a command (seed 001).
    GrantThenExec,
    /// What looks like a secret was read, and a command was run.
    SecretThenExec,
    /// Many calls were denied.
    Denials,
    /// Commands were tried that are denied.
    DeniedCommands,
    /// Paths were tried that lead out of what the run may touch.
    EscapeAttempts,
    /// Rights were tried to be had that were not given (seed 001).
    PermissionEscalation,
    /// Calls went on over a rate limit (seed 001).
    RateLimitAbuse,
    /// The same call, over and over.
    Loop,
    /// A run has used up its quota of the daemon's disk.
    DiskQuota,
    /// The daemon's disk has little room left.
    DiskLow,
}

impl AnomalyRule {
    /// All of them, in the order of the documentation.
    pub const ALL: [Self; 14] = [
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
    ];

    /// Its id: in policy, record and API.
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
        }
    }

    /// The rule of this id.
    pub fn parse(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == id)
    }

    /// What holds where the policy says nothing.
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
        };
        AnomalySetting {
            threshold,
            window_s,
            // What is enforced is an operator's decision, once the alerts of their own agents are known.
            action: AnomalyAction::Alert,
            severity,
            of: (self == Self::RepeatedFailures).then_some(10),
            factor: (self == Self::Spike).then_some(4),
        }
    }
}

/// How much an alert matters. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing when somebody looks.
    Low,
    /// Worth a look today.
    Medium,
    /// Worth a look now.
    High,
    /// Worth waking somebody.
    Critical,
}

impl Severity {
    /// All of them, least first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// As in policy, record and API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// What follows when a rule fires, beside the alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "action")]
pub enum AnomalyAction {
    /// Nothing: the rule is switched off, and there is no alert either.
    Off,
    /// There is the alert and nothing more.
    Alert,
    /// The agent may make so many calls a minute.
    Throttle {
        per_minute: u32,
        /// For so long, seconds.
        for_s: u64,
    },
    /// Every call of the agent needs consent, also one that the policy allows.
    RequireApproval {
        /// For so long, seconds.
        for_s: u64,
    },
    /// The run is frozen until somebody acknowledges the alert.
    Freeze,
    /// The run is stopped.
    Stop,
}

impl AnomalyAction {
    /// As in policy, record and API.
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
    /// It fires at so many; `spike` at more than so many.
    pub threshold: u64,
    /// Within so long, seconds.
    pub window_s: u64,
    #[serde(flatten)]
    pub action: AnomalyAction,
    pub severity: Severity,
    /// `repeated_failures`: of so many last calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
    /// `spike`: and more than so many times the agent's own baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<u64>,
}

impl AnomalySetting {
    pub fn window(&self) -> Duration {
        Duration::from_secs(self.window_s)
    }

    /// Whether the rule is on.
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

    /// With another setting of one rule.
    #[must_use]
    pub fn with(mut self, rule: AnomalyRule, setting: AnomalySetting) -> Self {
        self.0.insert(rule, setting);
        self
    }

    /// The longest window of a rule that is on; zero when none is.
    pub fn longest_window(&self) -> Duration {
        self.0
            .values()
            .filter(|setting| setting.is_on())
            .map(AnomalySetting::window)
            .max()
            .unwrap_or_default()
    }
}
