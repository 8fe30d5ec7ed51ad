use crate::alert::{Acknowledged, Alert, DeliveryState, ImposedState};
use policy::{AnomalyAction, AnomalyRule, AnomalySetting, Severity};

use super::{AlertTable, Listener, MAX_ALERTS, MAX_DUE};
use crate::detector::Firing;
use crate::rules::{Evidence, testing};
use crate::seen::Subject;

const MINUTE: u64 = 60_000;

fn firing(who: &str, sequence: u64) -> Firing {
    let agent = testing::agent(who);
    Firing {
        rule: AnomalyRule::Denials,
        subject: Subject::Agent(agent.clone()),
        agent,
        run: "run".into(),
        at: 0,
        sequence,
        evidence: Evidence { count: 20, sequences: vec![sequence] },
    }
}

fn setting(action: AnomalyAction) -> AnomalySetting {
    AnomalySetting { action, ..AnomalyRule::Denials.default_setting() }
}

fn word() -> Acknowledged {
    Acknowledged { by: "uid:0".into(), at: 0, comment: String::new() }
}

fn raised(table: &mut AlertTable, who: &str, action: AnomalyAction, at: u64) -> Option<Alert> {
    table.fire(&firing(who, at), &setting(action), at, &[])
}

#[test]
fn one_alert_for_a_rule_a_subject_and_a_window() {
    let mut table = AlertTable::default();
    let alert = raised(&mut table, "alice", AnomalyAction::Alert, 0).unwrap();
    assert_eq!(raised(&mut table, "alice", AnomalyAction::Alert, 9 * MINUTE), None);
    assert_eq!(
        raised(&mut table, "alice", AnomalyAction::Alert, 18 * MINUTE),
        None,
        "each within the window"
    );
    let counted = table.get(alert.id).unwrap();
    assert_eq!((counted.occurrences, counted.last_sequence, counted.count), (3, 18 * MINUTE, 20));
    assert!(raised(&mut table, "bob", AnomalyAction::Alert, MINUTE).is_some());
    assert!(
        raised(&mut table, "alice", AnomalyAction::Alert, 28 * MINUTE).is_some(),
        "the window has passed"
    );
    assert_eq!(table.newest().count(), 3);
    // What was stored is counted on.
    let changes = table.take_changes();
    let mut again = AlertTable::new(changes.alerts);
    assert_eq!(raised(&mut again, "alice", AnomalyAction::Alert, 29 * MINUTE), None);
    assert!(table.take_changes().is_empty());
}

#[test]
fn a_measure_is_imposed_once_while_it_holds_and_again_when_it_is_over() {
    let mut table = AlertTable::default();
    let action = AnomalyAction::Throttle { per_minute: 1, for_s: 1_800 };
    let alert = raised(&mut table, "alice", action, 0).unwrap();
    assert_eq!(alert.imposed.state, ImposedState::Due);
    table.change(alert.id, |alert| {
        alert.imposed.state = ImposedState::InForce;
        alert.imposed.until = Some(30 * MINUTE);
    });
    assert_eq!(raised(&mut table, "alice", action, 29 * MINUTE), None, "longer than the window");
    assert!(raised(&mut table, "alice", action, 30 * MINUTE).is_some());
    let mut table = AlertTable::default();
    let frozen = raised(&mut table, "alice", AnomalyAction::Freeze, 0).unwrap();
    table.change(frozen.id, |alert| alert.imposed.state = ImposedState::InForce);
    assert_eq!(
        raised(&mut table, "alice", AnomalyAction::Freeze, 99 * MINUTE),
        None,
        "it holds until it is lifted"
    );
    let seen = table.acknowledge(frozen.id, word()).unwrap();
    assert_eq!(seen.imposed.state, ImposedState::Lifted);
    assert_eq!(table.acknowledge(frozen.id, word()), None, "once");
    assert!(raised(&mut table, "alice", AnomalyAction::Freeze, 99 * MINUTE).is_some(), "another alert");
}

#[test]
fn full_table_evicts_least_severe_and_keeps_holding_alerts() {
    let mut table = AlertTable::default();
    let holds = raised(&mut table, "frozen", AnomalyAction::Freeze, 0).unwrap();
    table.change(holds.id, |alert| alert.imposed.state = ImposedState::InForce);
    let high = AnomalySetting { severity: Severity::High, ..setting(AnomalyAction::Alert) };
    let important = table.fire(&firing("important", 1), &high, 0, &[]).unwrap();
    let second = raised(&mut table, "0", AnomalyAction::Alert, 0).unwrap();
    for number in 1..MAX_ALERTS {
        let alert = raised(&mut table, &number.to_string(), AnomalyAction::Alert, 0).unwrap();
        table.change(alert.id, |alert| alert.recorded = true);
        table.change(second.id, |alert| alert.recorded = true);
        table.change(important.id, |alert| alert.recorded = true);
    }
    assert_eq!(table.newest().count(), MAX_ALERTS);
    assert!(table.get(holds.id).is_some() && table.get(important.id).is_some());
    assert!(table.get(second.id).is_none(), "the oldest of the least important");
    assert!(table.take_changes().removed.contains(&second.id));
}

#[test]
fn the_queue_of_a_webhook_is_bounded_and_holds_recorded_events() {
    let mut table = AlertTable::default();
    let listeners = [("all", Severity::Low), ("urgent", Severity::High)]
        .map(|(name, min_severity)| Listener { name: name.into(), min_severity });
    let mut first = None;
    for number in 0..=MAX_DUE {
        let alert = table
            .fire(&firing(&number.to_string(), 1), &setting(AnomalyAction::Alert), 0, &listeners)
            .unwrap();
        assert_eq!(alert.deliveries.len(), 1, "not urgent");
        first.get_or_insert(alert.id);
    }
    assert_eq!(table.next_delivery("all"), None, "nothing is on record yet");
    let first = table.get(first.unwrap()).unwrap();
    assert_eq!(first.deliveries[0].state, DeliveryState::GaveUp);
    assert!(first.deliveries[0].failure.contains("too many"));
    let ids: Vec<_> = table.newest().map(|alert| alert.id).collect();
    for id in ids {
        table.change(id, |alert| alert.recorded = true);
    }
    assert!(table.next_delivery("all").is_some() && table.next_delivery("urgent").is_none());
}
