//! The section `approvals` of a profile: the time for a decision, the levels of approvers, and the forms of remembered
//! consent.

use std::time::Duration;

use serde::Serialize;

use operations::Operation;

use crate::{Form, Level, Risk};
use document::At;

/// Most approvers that a critical call may need.
const MAX_QUORUM: u64 = 16;
/// A week, in seconds: no call has to wait longer.
const MAX_TIMEOUT_S: u64 = 7 * 86_400;

/// Terms of requests for consent under a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ApprovalPolicy {
    /// Time after which the call is denied, seconds. The daemon's `approvals.timeout` can make it shorter, never
    /// longer.
    pub timeout_s: u64,
    /// Time of the one reminder to approvers.
    pub reminder: Reminder,
    /// Number of different approvers that have to consent to a critical call.
    pub quorum: u64,
    /// The level that a decision needs, by risk.
    pub levels: Levels,
    /// Risk from which consent has to be signed with a passkey.
    #[serde(skip_serializing_if = "PasskeyFrom::is_never")]
    pub passkey: PasskeyFrom,
    /// Freezes the run from before a reviewer is asked until the call is over.
    pub freeze: bool,
    /// Forms, besides `once`, in which a reviewer may have consent remembered.
    pub remember: Vec<Form>,
}

/// Time of the reminder of a pending approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reminder {
    /// Once, when half of the time is over.
    HalfTime,
    None,
}

/// Risk from which consent has to be signed with a passkey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PasskeyFrom {
    /// Every consent.
    Required,
    Medium,
    High,
    Critical,
    /// None.
    Never,
}

impl PasskeyFrom {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
    fn is_never(&self) -> bool {
        *self == Self::Never
    }

    fn covers(self, risk: Risk) -> bool {
        match self {
            Self::Required => true,
            Self::Medium => risk >= Risk::Medium,
            Self::High => risk >= Risk::High,
            Self::Critical => risk >= Risk::Critical,
            Self::Never => false,
        }
    }
}

/// The level that a decision needs, by the risk of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Levels {
    pub low: Level,
    pub medium: Level,
    pub high: Level,
    /// For `critical`; always [`Level::Director`].
    pub critical: Level,
}

impl Levels {
    fn of(self, risk: Risk) -> Level {
        match risk {
            Risk::Low => self.low,
            Risk::Medium => self.medium,
            Risk::High => self.high,
            Risk::Critical => self.critical,
        }
    }
}

/// Terms of one approval: the profile's section, applied to the risk of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// Time after which the call is denied.
    pub timeout: Duration,
    /// Reminds approvers at half-time.
    pub remind: bool,
    /// Number of different approvers that have to consent.
    pub needed: u32,
    /// The level that each approver needs.
    pub level: Level,
    /// True if consent has to be signed with a passkey.
    pub passkey: bool,
    /// Freezes the run until the call is over.
    pub freeze: bool,
    /// Forms, besides `once`, in which consent may be remembered, as far as the operation allows it.
    pub remember: Vec<Form>,
}

/// Time that reviewers have for a decision, and the setting that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionTime {
    pub time: Duration,
    /// Name of the setting, such as `profile review: approvals.timeout_s`.
    pub from: String,
}

impl Terms {
    /// Returns the shorter of the profile's time and `longest`, which the daemon's configuration sets for all profiles.
    pub fn decision_time(&self, profile: &str, longest: Option<Duration>) -> DecisionTime {
        match longest.filter(|longest| *longest < self.timeout) {
            Some(time) => DecisionTime { time, from: "configuration: approvals.timeout".to_owned() },
            None => {
                DecisionTime { time: self.timeout, from: format!("profile {profile}: approvals.timeout_s") }
            }
        }
    }
}

impl ApprovalPolicy {
    /// Returns the terms of a call of this risk. Consent that covers only words freezes nothing.
    pub fn terms(&self, risk: Risk, operation: &Operation) -> Terms {
        Terms { freeze: self.freeze && !operation.binds_words(), ..self.terms_of_connection(risk) }
    }

    /// Returns the terms of a connection of this risk. Consent to it covers no file, so it freezes nothing.
    pub fn terms_of_connection(&self, risk: Risk) -> Terms {
        let quorum = if risk == Risk::Critical { self.quorum } else { 1 };
        Terms {
            timeout: Duration::from_secs(self.timeout_s),
            remind: self.reminder == Reminder::HalfTime,
            needed: u32::try_from(quorum).unwrap_or(u32::MAX),
            level: self.levels.of(risk),
            passkey: self.passkey.covers(risk),
            freeze: false,
            remember: self.remember.clone(),
        }
    }
}

pub(super) const KEYS: [&str; 7] =
    ["timeout_s", "reminder", "quorum", "levels", "passkey", "freeze", "remember"];
const LEVELS: [(&str, Level); 2] = [("approver", Level::Approver), ("director", Level::Director)];
const RISKS: [&str; 4] = ["low", "medium", "high", "critical"];
const FORMS: [(&str, Form); 2] = [("digest", Form::Digest), ("prefix", Form::Prefix)];
const REMINDERS: [(&str, Reminder); 2] = [("half-time", Reminder::HalfTime), ("none", Reminder::None)];
const PASSKEYS: [(&str, PasskeyFrom); 5] = [
    ("required", PasskeyFrom::Required),
    ("medium", PasskeyFrom::Medium),
    ("high", PasskeyFrom::High),
    ("critical", PasskeyFrom::Critical),
    ("never", PasskeyFrom::Never),
];

/// Reads the section. A missing one has the strict values.
pub(super) fn approvals(at: Option<&At<'_>>) -> ApprovalPolicy {
    let fields = at.map(|at| at.fields(&KEYS));
    let get = |key: &str| fields.as_ref().and_then(|fields| fields.get(key));
    let number = |key, most, default| get(key).and_then(|at| at.number(1..=most)).unwrap_or(default);
    ApprovalPolicy {
        timeout_s: number("timeout_s", MAX_TIMEOUT_S, 300),
        reminder: get("reminder").and_then(|at| at.one_of(&REMINDERS)).unwrap_or(Reminder::HalfTime),
        quorum: number("quorum", MAX_QUORUM, 1),
        levels: levels(get("levels")),
        passkey: match get("passkey") {
            None => PasskeyFrom::Never,
            Some(at) => at.one_of(&PASSKEYS).unwrap_or(PasskeyFrom::Required),
        },
        freeze: get("freeze").and_then(At::flag).unwrap_or(true),
        remember: get("remember").map_or_else(Vec::new, remember),
    }
}

fn levels(at: Option<&At<'_>>) -> Levels {
    let fields = at.map(|at| at.fields(&RISKS));
    let level = |risk: &str, least: Level| {
        let Some(at) = fields.as_ref().and_then(|fields| fields.get(risk)) else { return least };
        let Some(level) = at.one_of(&LEVELS) else { return least };
        if level < least {
            at.problem_hint(
                format!("a decision on a {risk} call needs the level `{least}` at least"),
                Some(format!("write `{least}`, or leave it out")),
            );
        }
        level.max(least)
    };
    Levels {
        low: level("low", Level::Approver),
        medium: level("medium", Level::Approver),
        high: level("high", Level::Approver),
        critical: level("critical", Level::Director),
    }
}

fn remember(at: &At<'_>) -> Vec<Form> {
    let mut forms: Vec<Form> = Vec::new();
    for item in at.items() {
        match item.one_of(&FORMS) {
            Some(form) if forms.contains(&form) => {
                item.problem_hint("given more than once", Some("keep one".to_owned()));
            }
            Some(form) => forms.push(form),
            None => {}
        }
    }
    forms.sort_unstable();
    forms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Problems};

    const CALL: Operation = Operation::Git(operations::Git::Status);

    fn load(section: &str) -> Result<ApprovalPolicy, Vec<String>> {
        let yaml = format!(
            "roles: {{r: {{allow: [read]}}}}\nprofiles:\n  p:\n    operations: {{read: allow}}\n    approvals: {section}\n"
        );
        Policy::from_files([("p.yaml", yaml)])
            .map(|policy| policy.profile("p").unwrap().approvals.clone())
            .map_err(|Problems(problems)| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn missing_approval_settings_are_strict() {
        let policy = load("{}").unwrap();
        assert_eq!((policy.timeout_s, policy.quorum, policy.freeze), (300, 1, true));
        assert_eq!((policy.reminder, policy.remember.as_slice()), (Reminder::HalfTime, &[][..]));
        let of = |risk| policy.terms(risk, &CALL).level;
        assert_eq!([Risk::Low, Risk::Medium, Risk::High].map(of), [Level::Approver; 3]);
        assert_eq!(of(Risk::Critical), Level::Director);
    }

    #[test]
    fn a_passkey_is_asked_for_from_a_risk_on_and_a_typing_error_asks_for_it_always() {
        let asks = |section: &str| {
            let policy = load(section).unwrap();
            [Risk::Low, Risk::Medium, Risk::High, Risk::Critical]
                .map(|risk| policy.terms(risk, &CALL).passkey)
        };
        assert_eq!(asks("{}"), [false; 4]);
        assert_eq!(asks("{passkey: never}"), [false; 4]);
        assert_eq!(asks("{passkey: critical}"), [false, false, false, true]);
        assert_eq!(asks("{passkey: high}"), [false, false, true, true]);
        assert_eq!(asks("{passkey: medium}"), [false, true, true, true]);
        assert_eq!(asks("{passkey: required}"), [true; 4]);
        let problems = load("{passkey: requierd}").unwrap_err().join("\n");
        assert!(problems.contains("approvals.passkey: unknown value `requierd`"), "{problems}");
        assert!(load("{passkey: high}").unwrap().terms_of_connection(Risk::High).passkey);
    }

    #[test]
    fn the_shorter_of_profile_and_configuration_decides_and_is_named() {
        let terms = load("{timeout_s: 120}").unwrap().terms(Risk::Low, &CALL);
        let (profile, configuration) = ("profile p: approvals.timeout_s", "configuration: approvals.timeout");
        for (longest, time, from) in [
            (None, 120, profile),
            (Some(300), 120, profile),
            (Some(120), 120, profile),
            (Some(60), 60, configuration),
        ] {
            let decision = terms.decision_time("p", longest.map(Duration::from_secs));
            assert_eq!((decision.time.as_secs(), decision.from.as_str()), (time, from), "{longest:?}");
        }
    }

    #[test]
    fn a_quorum_is_for_critical_calls() {
        let policy = load(
            "{quorum: 3, levels: {high: director}, remember: [prefix, digest], reminder: none, freeze: false}",
        )
        .unwrap();
        let (high, critical) = (policy.terms(Risk::High, &CALL), policy.terms(Risk::Critical, &CALL));
        assert_eq!((high.needed, high.level), (1, Level::Director));
        assert_eq!((critical.needed, critical.level), (3, Level::Director));
        assert_eq!(critical.remember, [Form::Digest, Form::Prefix]);
        assert!(!critical.freeze && !high.freeze && !critical.remind);
    }

    #[test]
    fn zero_absurd_and_unknown_values_are_named() {
        let problems = load(
            "{timeout_s: 0, quorum: 17, levels: {critical: approver, hihg: director, low: boss}, freeze: maybe, remember: [digest, digest, always], reminder: twice, timeout: 5}",
        )
        .unwrap_err();
        let all = problems.join("\n");
        assert_eq!(problems.len(), 11 - 1, "{all}");
        for part in [
            "approvals.timeout_s: must be a whole number from 1 to 604800",
            "approvals.quorum: must be a whole number from 1 to 16",
            "approvals.levels.critical: a decision on a critical call needs the level `director`",
            "approvals.levels.hihg: unknown key",
            "approvals.levels.low: unknown value `boss`",
            "approvals.freeze: expected true or false",
            "approvals.remember[1]: given more than once",
            "approvals.remember[2]: unknown value `always`",
            "approvals.reminder: unknown value `twice`",
            "approvals.timeout: unknown key",
        ] {
            assert!(all.contains(part), "{part} is not in\n{all}");
        }
        assert!(all.contains("p.yaml:5"), "{all}");
    }
}
