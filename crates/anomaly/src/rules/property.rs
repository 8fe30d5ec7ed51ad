//! The incremental rules agree with a naive recount, for all events in any order.

use policy::{AnomalyAction, AnomalyRule, AnomalySetting};
use proptest::prelude::*;

use super::naive;
use super::testing::Tape;
use crate::seen::{Denial, Ended, Ending, Kind, Mark, What};

fn kinds() -> impl Strategy<Value = Kind> {
    prop::sample::select(vec![Kind::Read, Kind::Look, Kind::Change, Kind::Delete, Kind::Command, Kind::Other])
}

fn endings() -> impl Strategy<Value = Ending> {
    prop_oneof![
        4 => Just(Ending::Succeeded),
        2 => Just(Ending::Failed),
        1 => Just(Ending::Denied(Denial::Command)),
        1 => Just(Ending::Denied(Denial::NotHeld)),
        1 => Just(Ending::Denied(Denial::Other)),
        1 => Just(Ending::Escape),
        1 => Just(Ending::OverLimit),
        1 => Just(Ending::Excused),
    ]
}

fn what() -> impl Strategy<Value = What> {
    let ended = (kinds(), endings(), 0..4_u8, any::<bool>()).prop_map(|(kind, ending, file, secret)| {
        // The arguments tell changes from other calls.
        let input = Mark::of(&[&[file], &[u8::from(matches!(kind, Kind::Change | Kind::Delete))]]);
        What::Ended(Ended { kind, ending, input: Some(input), files: vec![Mark::of(&[&[file]])], secret })
    });
    let host = || (0..6_u8).prop_map(|host| Mark::of(&[&[host]]));
    prop_oneof![
        6 => ended,
        4 => Just(What::Asked),
        1 => Just(What::Granted),
        1 => Just(What::Escalated),
        2 => host().prop_map(What::Connected),
        2 => host().prop_map(What::Unreached),
        1 => Just(What::Misplaced),
        1 => Just(What::Spending),
        // Around one MiB, the unit of the threshold.
        2 => prop::sample::select(vec![0, 1, (1 << 20) - 1, 1 << 20, 3 << 20]).prop_map(What::Sent),
    ]
}

fn tapes() -> impl Strategy<Value = Tape> {
    // Times that fall on, just before and just after the ends of windows.
    let gap = prop_oneof![4 => 0..400_u64, 2 => Just(9_999), 2 => Just(10_000), 1 => Just(10_001), 1 => 0..60_000_u64];
    prop::collection::vec((gap, 0..2_usize, 0..2_usize, what()), 0..160).prop_map(|events| {
        let mut tape = Tape::default();
        for (gap, who, run, what) in events {
            tape.wait(gap).add_in(["alice", "bob"][who], ["1", "2"][run], what);
        }
        tape
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn incremental_counting_agrees_with_a_naive_recount(
        tape in tapes(),
        threshold in 1..6_u64,
        more in 0..4_u64,
        factor in 1..4_u64,
    ) {
        for rule in AnomalyRule::ALL {
            let setting = AnomalySetting {
                threshold,
                window_s: 10,
                action: AnomalyAction::Alert,
                of: Some(threshold + more),
                factor: Some(factor),
                ..rule.default_setting()
            };
            prop_assert_eq!(tape.fires(rule, &setting), naive::fires(&tape.seen, rule, &setting), "{:?}", rule);
        }
    }
}
