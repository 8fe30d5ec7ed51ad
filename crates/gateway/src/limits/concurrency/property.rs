//! Histories of calls that come, go and give up, against a list that is looked through for the tenant with the fewest.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;

use policy::Caps;

use super::{Count, Reservation, Reservations, Turn, Whole};
use crate::testing::TestClock;

#[derive(Debug, Clone)]
enum Step {
    /// A call of one of three runs; the last two have one principal.
    Enter(usize),
    /// The call with this number, of those that are there, ends or gives up.
    Leave(prop::sample::Index),
}

const RUNS: [(&str, &str); 3] = [("run-0", "uid:0"), ("run-1", "uid:1"), ("run-2", "uid:1")];

struct Call {
    id: usize,
    run: usize,
    runs: bool,
    reservation: Reservation,
}

/// The calls that are there, oldest first.
#[derive(Default)]
struct Model(Vec<Call>);

impl Model {
    fn count(&self, of: impl Fn(&str, &str) -> bool) -> Count {
        let of = |call: &&Call| of(RUNS[call.run].0, RUNS[call.run].1);
        let number = |runs: bool| self.0.iter().filter(of).filter(|call| call.runs == runs).count();
        let number = |runs| u32::try_from(number(runs)).unwrap();
        Count { running: number(true), waiting: number(false) }
    }

    /// Returns the counts of the run, of its principal, and of all.
    fn counts(&self, run: usize) -> [Count; 3] {
        let (name, principal) = RUNS[run];
        [self.count(|of, _| of == name), self.count(|_, of| of == principal), self.count(|_, _| true)]
    }

    fn is_below_caps(&self, run: usize, caps: &Caps, whole: Whole) -> bool {
        let [of_run, of_principal, all] = self.counts(run).map(|count| count.running);
        of_run < caps.run && of_principal < caps.principal && all < whole.running
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn slots_are_never_exceeded_nor_left_empty_and_served_in_order(
        steps in prop::collection::vec(
            prop_oneof![3 => (0_usize..3).prop_map(Step::Enter), 2 => any::<prop::sample::Index>().prop_map(Step::Leave)],
            1..120,
        ),
        (run, principal, waiting) in (1_u32..4, 1_u32..6, 0_u32..4),
        (running, in_line) in (1_u32..7, 0_u32..8),
    ) {
        let caps = Caps { run, principal, waiting, wait_s: 1 };
        let whole = Whole { running, waiting: in_line };
        let clock = TestClock::new();
        let reservations = Reservations::new(whole, clock.clone());
        let woken = Arc::new(Mutex::new(Vec::new()));
        let mut model = Model::default();
        for (id, step) in steps.into_iter().enumerate() {
            clock.advance(Duration::from_millis(10));
            match step {
                Step::Enter(run) => {
                    let [of_run, of_principal, all] = model.counts(run);
                    let is_below_caps = model.is_below_caps(run, &caps, whole);
                    let may_wait = of_run.waiting < caps.waiting
                        && of_principal.waiting < caps.principal
                        // Each principal is a tenant by itself.
                        && of_principal.waiting + all.waiting < whole.waiting;
                    let (mut waits, later) = (false, woken.clone());
                    let entered = reservations.enter([RUNS[run].0, RUNS[run].1, RUNS[run].1], &caps, Turn::Ordinary, || {
                        waits = true;
                        Box::new(move || later.lock().push(id))
                    });
                    prop_assert_eq!(entered.is_ok(), is_below_caps || may_wait);
                    match entered {
                        Ok(reservation) => {
                            prop_assert_eq!(waits, !is_below_caps);
                            prop_assert_eq!(reservation.waits_for().is_some(), waits);
                            model.0.push(Call { id, run, runs: is_below_caps, reservation });
                        }
                        Err(busy) => {
                            prop_assert!(busy.count.running >= busy.limit);
                            prop_assert!(busy.retry_after >= Duration::from_millis(100));
                            prop_assert!(busy.retry_after <= Duration::from_secs(60));
                        }
                    }
                }
                Step::Leave(which) if !model.0.is_empty() => {
                    let gone = model.0.remove(which.index(model.0.len()));
                    drop(gone.reservation);
                    let mut expected = Vec::new();
                    // Those of the principal with the fewest running calls first, each in order.
                    while let Some(next) = (0..model.0.len())
                        .filter(|index| !model.0[*index].runs && model.is_below_caps(model.0[*index].run, &caps, whole))
                        .min_by_key(|index| (model.counts(model.0[*index].run)[1].running, *index))
                    {
                        model.0[next].runs = true;
                        expected.push(model.0[next].id);
                    }
                    prop_assert_eq!(std::mem::take(&mut *woken.lock()), expected);
                }
                Step::Leave(_) => {}
            }
            for (run, (name, principal)) in RUNS.into_iter().enumerate() {
                let expected = model.counts(run);
                let counts = [reservations.of_run(name), reservations.of_principal(principal), reservations.of_all().0];
                prop_assert_eq!(counts, expected);
                let most = [caps.run, caps.principal, whole.running];
                prop_assert!(counts.iter().zip(most).all(|(count, most)| count.running <= most));
                prop_assert!(counts[2].waiting <= whole.waiting && counts[1].waiting <= caps.principal);
            }
        }
        drop(model);
        prop_assert_eq!(reservations.of_all().0, Count::default());
        prop_assert!(reservations.is_forgotten());
    }
}
