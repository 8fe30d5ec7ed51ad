//! Histories of calls against a log of every call.

use std::time::Duration;

use proptest::prelude::*;
use timestamp::UnixMillis;

use super::series::GRAINS;
use super::{Limits, NotAdmitted};
use crate::testing::{TestClock, caller};
use policy::{Limit, Quota, RateLimits, Span};

#[derive(Debug, Clone)]
enum Step {
    Wait(u64),
    /// Exactly as long as the last refusal said, less a millisecond first.
    Retry,
    Call,
    SetClock(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![
        4 => 0_u64..3_000,
        3 => 0_u64..120_000,
        1 => 0_u64..7_200_000,
        1 => 0_u64..100_000_000,
    ];
    let step = prop_oneof![
        3 => wait.prop_map(Step::Wait),
        6 => Just(Step::Call),
        1 => Just(Step::Retry),
        1 => any::<u64>().prop_map(|to| Step::SetClock(to / 4)),
    ];
    proptest::collection::vec(step, 1..200)
}

fn limits(minute: u32, hour: u32, day: u32) -> RateLimits {
    let wide = Quota { minute: Limit::Unlimited, hour: Limit::Unlimited, day: Limit::Unlimited };
    let quota = Quota::new(minute, hour, day);
    RateLimits { operations: [(RateLimits::DEFAULT.to_owned(), quota)].into(), run: wide, principal: wide }
}

/// Calls of the log that are younger than `window` at `now`.
fn within(log: &[u64], now: u64, window: u64) -> usize {
    log.iter().filter(|at| **at + window > now).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn never_one_too_many_never_one_too_few_and_every_wait_is_true(
        steps in steps(),
        minute in 1_u32..12,
        hour in 0_u32..12,
        day in 0_u32..12,
    ) {
        let (hour, day) = (minute + hour, minute + hour + day);
        let rates = limits(minute, hour, day);
        let clock = TestClock::new();
        let counters = Limits::new(clock.clone());
        let admit = || counters.admit(&rates, &caller("worker"), "read");
        let mut now = 0;
        let mut log: Vec<u64> = Vec::new();
        let mut refused: Option<Duration> = None;
        for step in steps {
            match step {
                Step::Wait(millis) => {
                    clock.advance(Duration::from_millis(millis));
                    now += millis;
                    refused = None;
                }
                Step::SetClock(to) => clock.set(UnixMillis(to)),
                Step::Retry => {
                    let Some(wait) = refused.take() else { continue };
                    clock.advance(wait.saturating_sub(Duration::from_millis(1)));
                    now += u64::try_from(wait.as_millis()).unwrap() - 1;
                    prop_assert!(admit().is_err(), "admitted a millisecond early");
                    clock.advance(Duration::from_millis(1));
                    now += 1;
                    prop_assert!(admit().is_ok(), "refused when it was to be admitted");
                    log.push(now);
                }
                Step::Call => match admit() {
                    Ok(()) => {
                        log.push(now);
                        refused = None;
                    }
                    Err(NotAdmitted::Exceeded(exceeded)) => {
                        // Some window is full, give or take one of its grains.
                        let window = exceeded.span.millis();
                        let counting = within(&log, now, window + window / GRAINS);
                        prop_assert!(counting >= exceeded.limit as usize, "refused with {counting} calls");
                        prop_assert!(exceeded.retry_after > Duration::ZERO);
                        prop_assert!(exceeded.retry_after <= Duration::from_millis(window + window / GRAINS));
                        refused = Some(exceeded.retry_after);
                    }
                    Err(other) => prop_assert!(false, "{other:?}"),
                },
            }
            for (span, limit) in [(Span::Minute, minute), (Span::Hour, hour), (Span::Day, day)] {
                let counting = within(&log, now, span.millis());
                prop_assert!(counting <= limit as usize, "{counting} calls in a {}", span.as_str());
            }
        }
    }

    #[test]
    fn a_window_needs_few_entries(gaps in proptest::collection::vec(0_u64..4_000_000, 1..2_000)) {
        let mut series = super::series::Series::default();
        let mut now = 0;
        for gap in gaps {
            now += gap;
            series.forget(Span::Day, now);
            series.add(Span::Day, now);
            prop_assert!(series.grains().count() <= usize::try_from(GRAINS).unwrap() + 2);
            prop_assert_eq!(series.grains().map(|grain| grain.2).sum::<u32>(), series.count());
        }
    }
}
