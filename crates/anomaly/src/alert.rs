//! An alert of an anomaly rule: its cause, the measure taken, and the deliveries. It is stored as JSON.
//!
//! ```text
//!             condition holds again within the span: counted
//!                    ┌───┐
//!  rule fires ─► OPEN ◄──┘ ── AcknowledgeAlert ─► ACKNOWLEDGED: what it imposed is lifted
//!                  │
//!                  └─ imposed: NONE, or DUE ─► IN_FORCE ─► LIFTED (by an operator) or OVER (by time)
//!                                           └► FAILED (the run has ended, …)
//! ```

use identity::AlertId;
use policy::{AnomalyAction, AnomalyRule, AnomalySetting, Severity};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub id: AlertId,
    pub rule: String,
    pub severity: Severity,
    pub subject: Whom,
    /// Principal whose call fired the rule.
    pub principal: String,
    pub agent_id: String,
    /// Run in which the rule fired; empty if it was in none.
    pub run_id: String,
    pub threshold: u64,
    pub window_s: u64,
    /// Number and sequence numbers of the records that raised it.
    pub count: u64,
    pub sequences: Vec<u64>,
    /// Time of the record at which the rule fired, in milliseconds since 1970.
    pub raised_at: u64,
    /// Times that the condition held since, including the first, and the time of the last one.
    pub occurrences: u64,
    pub last_at: u64,
    pub last_sequence: u64,
    pub imposed: Imposed,
    /// True if the alert is in the audit log.
    pub recorded: bool,
    pub acknowledged: Option<Acknowledged>,
    pub deliveries: Vec<Delivery>,
}

/// Subject for which the rule counts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Whom {
    Run { run_id: String },
    Agent { principal: String, agent_id: String },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imposed {
    pub measure: Measure,
    pub state: ImposedState,
    /// Time at which it ends by itself, in milliseconds since 1970.
    pub until: Option<u64>,
    pub failure: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    None,
    Throttle { per_minute: u32, for_s: u64 },
    RequireApproval { for_s: u64 },
    Freeze,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ImposedState {
    None,
    Due,
    InForce,
    /// An operator lifted it.
    Lifted,
    /// Its time has passed, or it was a stop and is done.
    Over,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    pub by: String,
    pub at: u64,
    pub comment: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Name of the webhook in the configuration.
    pub webhook: String,
    pub state: DeliveryState,
    pub attempts: u32,
    /// Time of the next attempt, in milliseconds since 1970.
    pub next_at: u64,
    /// Reason why the last attempt failed.
    pub failure: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    Due,
    Delivered,
    GaveUp,
}

impl Imposed {
    pub fn due(setting: &AnomalySetting) -> Self {
        let measure = match setting.action {
            AnomalyAction::Off | AnomalyAction::Alert => Measure::None,
            AnomalyAction::Throttle { per_minute, for_s } => Measure::Throttle { per_minute, for_s },
            AnomalyAction::RequireApproval { for_s } => Measure::RequireApproval { for_s },
            AnomalyAction::Freeze => Measure::Freeze,
            AnomalyAction::Stop => Measure::Stop,
        };
        let state = if measure == Measure::None { ImposedState::None } else { ImposedState::Due };
        Self { measure, state, until: None, failure: String::new() }
    }
}

impl Measure {
    /// Returns the name as in the policy, the record and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "alert",
            Self::Throttle { .. } => "throttle",
            Self::RequireApproval { .. } => "require_approval",
            Self::Freeze => "freeze",
            Self::Stop => "stop",
        }
    }

    /// Returns its duration in milliseconds, or `None` if it lasts until an operator lifts it.
    pub fn lasts(self) -> Option<u64> {
        match self {
            Self::Throttle { for_s, .. } | Self::RequireApproval { for_s } => {
                Some(for_s.saturating_mul(1_000))
            }
            _ => None,
        }
    }
}

impl Alert {
    /// Returns the alert in one sentence.
    pub fn summary(&self) -> String {
        let what = match AnomalyRule::parse(&self.rule) {
            Some(AnomalyRule::Spike) => "calls, which is far more than usual",
            Some(AnomalyRule::RepeatedFailures) => "of the last calls failed",
            Some(AnomalyRule::ReadWriteDelete) => "times a file was read, written and deleted",
            Some(AnomalyRule::ReadWriteDeleteBurst) => {
                "times reading, writing and deleting within five calls"
            }
            Some(AnomalyRule::GrantThenExec) => "commands right after a grant",
            Some(AnomalyRule::SecretThenExec) => {
                "commands directly after a read of something that looks like a secret"
            }
            Some(AnomalyRule::Denials) => "calls were denied",
            Some(AnomalyRule::DeniedCommands) => "denied commands were tried",
            Some(AnomalyRule::EscapeAttempts) => "attempts to access files outside of the run",
            Some(AnomalyRule::PermissionEscalation) => "attempts to use rights that were not granted",
            Some(AnomalyRule::RateLimitAbuse) => "calls over a rate limit",
            Some(AnomalyRule::Loop) => "times the same call",
            Some(AnomalyRule::DiskQuota) => "times the run's quota of the daemon's disk was used up",
            Some(AnomalyRule::DiskLow) => "times the daemon's disk had little space left",
            Some(AnomalyRule::EgressVolume) => "MiB sent to hosts outside",
            Some(AnomalyRule::EgressAfterSecret) => {
                "first connections to a host directly after a read of something that looks like a secret"
            }
            Some(AnomalyRule::EgressRefusals) => "different hosts to which the run was refused",
            Some(AnomalyRule::PlaceholderElsewhere) => {
                "requests with the placeholder of a secret where it is worth nothing"
            }
            Some(AnomalyRule::ModelBudget) => "bounds of a budget for models were used up to 80 %",
            None => "events",
        };
        format!("{} {what} within {} s", self.count, self.window_s)
    }

    /// Returns the fields that are both in its record and in its message.
    pub fn facts(&self) -> Value {
        json!({
            "alert_id": self.id,
            "rule": self.rule,
            "severity": self.severity,
            "subject": self.subject,
            "summary": self.summary(),
            "threshold": self.threshold,
            "window_s": self.window_s,
            "count": self.count,
            "sequences": self.sequences,
            "action": self.imposed.measure.name(),
        })
    }

    /// Returns true if the measure is no longer in force, because its time has passed or an operator lifted it.
    pub fn is_over(&self, now: u64) -> bool {
        match self.imposed.state {
            ImposedState::Due => false,
            ImposedState::InForce => self.imposed.until.is_some_and(|until| until <= now),
            _ => true,
        }
    }

    /// Returns true if the alert no longer changes by itself.
    pub fn is_settled(&self, now: u64) -> bool {
        let told = self.deliveries.iter().all(|delivery| delivery.state != DeliveryState::Due);
        self.recorded && told && self.is_over(now)
    }
}
