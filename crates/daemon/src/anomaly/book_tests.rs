use gateway::{AnomalyAction, AnomalyRule, AnomalySetting, Severity};
use store::alert::{Acknowledged, Alert, DeliveryState, ImposedState};

use super::super::detector::Firing;
use super::super::rules::{Evidence, testing};
use super::super::seen::Subject;
use super::{Book, Listener, MAX_ALERTS, MAX_DUE};

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

fn raised(book: &mut Book, who: &str, action: AnomalyAction, at: u64) -> Option<Alert> {
    book.fire(&firing(who, at), &setting(action), at, &[])
}

#[test]
fn one_alert_for_a_rule_a_subject_and_a_window() {
    let mut book = Book::default();
    let alert = raised(&mut book, "alice", AnomalyAction::Alert, 0).unwrap();
    assert_eq!(raised(&mut book, "alice", AnomalyAction::Alert, 9 * MINUTE), None);
    assert_eq!(raised(&mut book, "alice", AnomalyAction::Alert, 18 * MINUTE), None, "each within the window");
    let counted = book.get(alert.id).unwrap();
    assert_eq!((counted.occurrences, counted.last_sequence, counted.count), (3, 18 * MINUTE, 20));
    assert!(raised(&mut book, "bob", AnomalyAction::Alert, MINUTE).is_some());
    assert!(raised(&mut book, "alice", AnomalyAction::Alert, 28 * MINUTE).is_some(), "the window has passed");
    assert_eq!(book.newest().count(), 3);
    // What was stored is counted on.
    let changes = book.take_changes();
    let mut again = Book::new(changes.alerts);
    assert_eq!(raised(&mut again, "alice", AnomalyAction::Alert, 29 * MINUTE), None);
    assert!(book.take_changes().is_empty());
}

#[test]
fn a_measure_is_imposed_once_while_it_holds_and_again_when_it_is_over() {
    let mut book = Book::default();
    let action = AnomalyAction::Throttle { per_minute: 1, for_s: 1_800 };
    let alert = raised(&mut book, "alice", action, 0).unwrap();
    assert_eq!(alert.imposed.state, ImposedState::Due);
    book.change(alert.id, |alert| {
        alert.imposed.state = ImposedState::InForce;
        alert.imposed.until = Some(30 * MINUTE);
    });
    assert_eq!(raised(&mut book, "alice", action, 29 * MINUTE), None, "longer than the window");
    assert!(raised(&mut book, "alice", action, 30 * MINUTE).is_some());
    let mut book = Book::default();
    let frozen = raised(&mut book, "alice", AnomalyAction::Freeze, 0).unwrap();
    book.change(frozen.id, |alert| alert.imposed.state = ImposedState::InForce);
    assert_eq!(
        raised(&mut book, "alice", AnomalyAction::Freeze, 99 * MINUTE),
        None,
        "it holds until it is lifted"
    );
    let seen = book.acknowledge(frozen.id, word()).unwrap();
    assert_eq!(seen.imposed.state, ImposedState::Lifted);
    assert_eq!(book.acknowledge(frozen.id, word()), None, "once");
    assert!(raised(&mut book, "alice", AnomalyAction::Freeze, 99 * MINUTE).is_some(), "another alert");
}

#[test]
fn what_matters_least_gives_way_and_what_holds_stays() {
    let mut book = Book::default();
    let holds = raised(&mut book, "frozen", AnomalyAction::Freeze, 0).unwrap();
    book.change(holds.id, |alert| alert.imposed.state = ImposedState::InForce);
    let high = AnomalySetting { severity: Severity::High, ..setting(AnomalyAction::Alert) };
    let important = book.fire(&firing("important", 1), &high, 0, &[]).unwrap();
    let second = raised(&mut book, "0", AnomalyAction::Alert, 0).unwrap();
    for number in 1..MAX_ALERTS {
        let alert = raised(&mut book, &number.to_string(), AnomalyAction::Alert, 0).unwrap();
        book.change(alert.id, |alert| alert.recorded = true);
        book.change(second.id, |alert| alert.recorded = true);
        book.change(important.id, |alert| alert.recorded = true);
    }
    assert_eq!(book.newest().count(), MAX_ALERTS);
    assert!(book.get(holds.id).is_some() && book.get(important.id).is_some());
    assert!(book.get(second.id).is_none(), "the oldest of the least important");
    assert!(book.take_changes().removed.contains(&second.id));
}

#[test]
fn a_webhook_has_a_bounded_queue_of_what_is_on_record() {
    let mut book = Book::default();
    let listeners = [("all", Severity::Low), ("urgent", Severity::High)]
        .map(|(name, min_severity)| Listener { name: name.into(), min_severity });
    let mut first = None;
    for number in 0..=MAX_DUE {
        let alert = book
            .fire(&firing(&number.to_string(), 1), &setting(AnomalyAction::Alert), 0, &listeners)
            .unwrap();
        assert_eq!(alert.deliveries.len(), 1, "not urgent");
        first.get_or_insert(alert.id);
    }
    assert_eq!(book.next_delivery("all"), None, "nothing is on record yet");
    let first = book.get(first.unwrap()).unwrap();
    assert_eq!(first.deliveries[0].state, DeliveryState::GaveUp);
    assert!(first.deliveries[0].failure.contains("too many"));
    let ids: Vec<_> = book.newest().map(|alert| alert.id).collect();
    for id in ids {
        book.change(id, |alert| alert.recorded = true);
    }
    assert!(book.next_delivery("all").is_some() && book.next_delivery("urgent").is_none());
}
