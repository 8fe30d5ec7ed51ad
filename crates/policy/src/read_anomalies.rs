//! Reads the settings of the anomaly rules from a tree of values. A missing value has the default that ships.

use std::ops::RangeInclusive;

use crate::anomalies::{Anomalies, AnomalyAction, AnomalyRule, AnomalySetting, Severity};
use document::{At, Fields, nearest};

/// Length of a window, seconds. A restart reads as much of the log again as the longest window covers.
const WINDOW_S: RangeInclusive<u64> = 10..=86_400;
/// Duration of a measure, seconds.
const FOR_S: RangeInclusive<u64> = 10..=7 * 86_400;

/// Reads the top-level section `anomalies`.
pub(super) fn anomalies(at: &At<'_>) -> Anomalies {
    let mut settings = Anomalies::default();
    let ids: Vec<&str> = AnomalyRule::ALL.iter().map(|rule| rule.as_str()).collect();
    for (id, value) in at.entries() {
        match AnomalyRule::parse(id) {
            Some(rule) => {
                settings.0.insert(rule, setting(rule, &value));
            }
            None => value.problem_hint("unknown anomaly rule", Some(nearest(id, &ids))),
        }
    }
    settings
}

fn setting(rule: AnomalyRule, at: &At<'_>) -> AnomalySetting {
    let default = rule.default_setting();
    let mut known = vec!["threshold", "window_s", "action", "severity", "for_s", "per_minute"];
    match rule {
        AnomalyRule::Spike => known.push("factor"),
        AnomalyRule::RepeatedFailures => known.push("of"),
        _ => {}
    }
    let fields = at.fields(&known);
    let thresholds = match rule {
        AnomalyRule::Spike => 1..=100_000,
        AnomalyRule::RepeatedFailures => 1..=100,
        // One call is not a loop.
        AnomalyRule::Loop => 2..=1_000,
        // One TiB.
        AnomalyRule::EgressVolume => 1..=1_048_576,
        // The log tells more apart only over several minutes.
        AnomalyRule::EgressRefusals => 1..=256,
        _ => 1..=1_000,
    };
    let setting = AnomalySetting {
        threshold: number(&fields, "threshold", thresholds, default.threshold),
        window_s: number(&fields, "window_s", WINDOW_S, default.window_s),
        action: action(&fields, default.action),
        severity: fields
            .get("severity")
            .and_then(|at| at.one_of(&Severity::ALL.map(|severity| (severity.as_str(), severity))))
            .unwrap_or(default.severity),
        of: default.of.map(|of| number(&fields, "of", 1..=100, of)),
        factor: default.factor.map(|factor| number(&fields, "factor", 1..=1_000, factor)),
    };
    if let Some(of) = setting.of.filter(|of| *of < setting.threshold) {
        at.problem_hint(
            format!("can never fire: {} of the last {of} calls cannot have failed", setting.threshold),
            Some(format!("`of` must be at least `threshold`, {}", setting.threshold)),
        );
    }
    setting
}

fn action(fields: &Fields<'_>, default: AnomalyAction) -> AnomalyAction {
    const WORDS: [(&str, AnomalyAction); 6] = [
        ("off", AnomalyAction::Off),
        ("alert", AnomalyAction::Alert),
        ("throttle", AnomalyAction::Throttle { per_minute: 10, for_s: 900 }),
        ("require_approval", AnomalyAction::RequireApproval { for_s: 900 }),
        ("freeze", AnomalyAction::Freeze),
        ("stop", AnomalyAction::Stop),
    ];
    let chosen = fields.get("action").and_then(|at| at.one_of(&WORDS)).unwrap_or(default);
    let for_s = |default| number(fields, "for_s", FOR_S, default);
    let chosen = match chosen {
        AnomalyAction::Throttle { per_minute, for_s: seconds } => AnomalyAction::Throttle {
            per_minute: u32::try_from(number(fields, "per_minute", 1..=10_000, per_minute.into()))
                .unwrap_or(per_minute),
            for_s: for_s(seconds),
        },
        AnomalyAction::RequireApproval { for_s: seconds } => {
            AnomalyAction::RequireApproval { for_s: for_s(seconds) }
        }
        other => other,
    };
    let (throttles, expires) = match chosen {
        AnomalyAction::Throttle { .. } => (true, true),
        AnomalyAction::RequireApproval { .. } => (false, true),
        _ => (false, false),
    };
    for (key, means, belongs) in [
        ("per_minute", throttles, "`per_minute` belongs to `action: throttle`"),
        ("for_s", expires, "`for_s` belongs to `action: throttle` and `action: require_approval`"),
    ] {
        if let Some(at) = fields.get(key).filter(|_| !means) {
            let suggestion = match chosen {
                AnomalyAction::Freeze => "a frozen run waits until the alert is acknowledged; remove it",
                _ => "remove it, or choose that action",
            };
            at.problem_hint(
                format!("contradicts `action: {}`: {belongs}", chosen.as_str()),
                Some(suggestion.to_owned()),
            );
        }
    }
    chosen
}

/// Reads a number, with a suggestion if it is out of range.
fn number(fields: &Fields<'_>, key: &str, range: RangeInclusive<u64>, default: u64) -> u64 {
    let hint = |given| match given {
        Some(0) if key == "threshold" => "`action: off` switches the rule off".to_owned(),
        _ => format!("{default} ships"),
    };
    let given = fields.get(key).and_then(|at| at.number_or_hint(range, |given| Some(hint(given))));
    given.unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policy, Problems};

    const REST: &str = "profiles: {p: {operations: {read: allow}}}\nroles: {r: {allow: [read]}}\n";

    fn load(anomalies: &str) -> Result<Policy, Problems> {
        Policy::from_files([("p.yaml", format!("{REST}anomalies:\n{anomalies}"))])
    }

    fn problems(anomalies: &str) -> Vec<String> {
        load(anomalies).unwrap_err().0.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn shipped_anomaly_rules_equal_the_defaults() {
        let shipped = Policy::builtin().unwrap();
        assert_eq!(*shipped.anomalies(), Anomalies::default());
        let (_, text) = Policy::builtin_files().find(|(name, _)| *name == "anomalies.yaml").unwrap();
        for rule in AnomalyRule::ALL {
            assert!(text.contains(&format!("\n  {}:", rule.as_str())), "{rule:?} is documented");
        }
        let bare = Policy::from_files([("p.yaml", REST)]).unwrap();
        assert_eq!(*bare.anomalies(), Anomalies::default());
    }

    #[test]
    fn each_rule_is_set_by_its_own_keys() {
        let policy = load(concat!(
            "  loop: {threshold: 3, window_s: 60, action: freeze, severity: critical}\n",
            "  spike: {factor: 9, action: throttle, per_minute: 5, for_s: 30}\n",
            "  repeated_failures: {threshold: 4, of: 5}\n",
            "  denials: {action: off}\n",
        ))
        .unwrap();
        let of = |rule| policy.anomalies().of(rule);
        assert_eq!(of(AnomalyRule::Loop).action, AnomalyAction::Freeze);
        assert_eq!(of(AnomalyRule::Loop).severity, Severity::Critical);
        assert_eq!((of(AnomalyRule::Loop).threshold, of(AnomalyRule::Loop).window_s), (3, 60));
        assert_eq!(of(AnomalyRule::Spike).factor, Some(9));
        assert_eq!(of(AnomalyRule::Spike).action, AnomalyAction::Throttle { per_minute: 5, for_s: 30 });
        assert_eq!(of(AnomalyRule::RepeatedFailures).of, Some(5));
        assert!(!of(AnomalyRule::Denials).is_on());
        assert_eq!(of(AnomalyRule::EscapeAttempts), AnomalyRule::EscapeAttempts.default_setting());
        let shown = Policy::from_files([("shown.yaml", policy.to_yaml().unwrap())]).unwrap();
        assert_eq!(shown, policy);
        assert_ne!(policy.digest(), Policy::from_files([("p.yaml", REST)]).unwrap().digest());
    }

    #[test]
    fn invalid_anomaly_rules_are_reported_with_place_and_hint() {
        let text = concat!(
            "  loop: {threshold: 0}\n",
            "  spike: {window_s: 9999999, of: 3}\n",
            "  denials: {action: frieze, severity: loud}\n",
            "  escapes: {threshold: 3}\n",
            "  denied_commands: {action: stop, for_s: 60}\n",
            "  escape_attempts: {action: freeze, per_minute: 3}\n",
            "  repeated_failures: {threshold: 8, of: 5}\n",
            "  grant_then_exec: {threshold: -1}\n",
            "  secret_then_exec: {action: require_approval, for_s: 1}\n",
            "  permission_escalation: []\n",
        );
        insta::assert_snapshot!(problems(text).join("\n"));
    }

    #[test]
    fn section_is_allowed_once() {
        let found = Policy::from_files([
            ("a.yaml", format!("{REST}anomalies: {{loop: {{threshold: 3}}}}\n")),
            ("b.yaml", "anomalies: {}\n".to_owned()),
        ]);
        let text = found.unwrap_err().to_string();
        assert!(text.contains("b.yaml:1: anomalies: the section is also in a.yaml (keep one)"), "{text}");
    }
}
