//! The life of a call against a model, over random histories of requests, votes, reminders, timeouts, reloads, changed
//! files, cancellations, clock jumps and restarts: every answer is what the model says, and no history executes without a
//! live permit, or twice.

mod model;
mod world;

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use world::World;

/// Calls that there can be at the same time; each of them does something else, in turns in one of two runs.
const SLOTS: usize = 8;

#[derive(Debug, Clone)]
enum Step {
    /// Takes the next step of a willing daemon and a willing director.
    Proceed {
        slot: usize,
    },
    Request {
        slot: usize,
    },
    Vote {
        slot: usize,
        who: usize,
        approve: bool,
        remember: usize,
        dies: bool,
    },
    Redeem {
        slot: usize,
        forged: Forged,
        dies: bool,
    },
    Execute {
        slot: usize,
    },
    ChangeFile {
        run: usize,
    },
    CancelCall {
        slot: usize,
    },
    EndRun {
        run: usize,
    },
    Forget,
    Forward {
        seconds: u64,
    },
    Back {
        seconds: u64,
    },
    Tick,
    Reload {
        policy: usize,
    },
    Restart,
}

/// In what a redeeming call is not the one that was shown.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Forged {
    Nothing,
    Content,
    OtherCall,
    OtherRun,
    OtherImage,
}

fn step() -> impl Strategy<Value = Step> {
    let slot = 0..SLOTS;
    let rarely = || prop::bool::weighted(0.05);
    let forged = prop_oneof![
        20 => Just(Forged::Nothing),
        1 => Just(Forged::Content),
        1 => Just(Forged::OtherCall),
        1 => Just(Forged::OtherRun),
        1 => Just(Forged::OtherImage),
    ];
    prop_oneof![
        40 => slot.clone().prop_map(|slot| Step::Proceed { slot }),
        8 => slot.clone().prop_map(|slot| Step::Request { slot }),
        10 => (slot.clone(), 0..5_usize, prop::bool::weighted(0.9), 0..3_usize, rarely())
            .prop_map(|(slot, who, approve, remember, dies)| Step::Vote { slot, who, approve, remember, dies }),
        8 => (slot.clone(), forged, rarely()).prop_map(|(slot, forged, dies)| Step::Redeem { slot, forged, dies }),
        8 => slot.clone().prop_map(|slot| Step::Execute { slot }),
        1 => (0..2_usize).prop_map(|run| Step::ChangeFile { run }),
        1 => slot.prop_map(|slot| Step::CancelCall { slot }),
        1 => (0..2_usize).prop_map(|run| Step::EndRun { run }),
        1 => Just(Step::Forget),
        2 => prop::sample::select(vec![1, 20, 30, 60, 599, 600]).prop_map(|seconds| Step::Forward { seconds }),
        1 => prop::sample::select(vec![1, 30, 700]).prop_map(|seconds| Step::Back { seconds }),
        2 => Just(Step::Tick),
        1 => prop_oneof![3 => Just(0_usize), 1 => 1..4_usize].prop_map(|policy| Step::Reload { policy }),
        2 => Just(Step::Restart),
    ]
}

#[test]
fn no_history_executes_without_a_live_permit_or_twice() {
    let wanted = effort::cases(1_500, 10_500);
    let [histories, steps, executed, recalled, restarts] = [const { AtomicUsize::new(0) }; 5];
    let mut runner =
        TestRunner::new(Config { cases: wanted, failure_persistence: None, ..Config::default() });
    let held = runner.run(&prop::collection::vec(step(), 1..60), |history| {
        let mut world = World::new();
        for step in &history {
            world.take(step);
        }
        histories.fetch_add(1, Ordering::Relaxed);
        steps.fetch_add(history.len(), Ordering::Relaxed);
        executed.fetch_add(world.executed(), Ordering::Relaxed);
        recalled.fetch_add(world.recalled, Ordering::Relaxed);
        restarts.fetch_add(world.restarts, Ordering::Relaxed);
        Ok(())
    });
    if let Err(failure) = held {
        panic!("{failure}");
    }
    let [histories, steps, executed, recalled, restarts] =
        [histories, steps, executed, recalled, restarts].map(AtomicUsize::into_inner);
    println!(
        "{histories} histories of {steps} steps: {executed} calls executed, {recalled} of them by a remembered consent, {restarts} restarts"
    );
    assert!(histories >= wanted as usize, "{histories}");
    // A test in which nothing happens would hold as well.
    assert!(
        executed > histories / 2 && recalled > histories / 100 && restarts > histories / 2,
        "{executed} {recalled} {restarts}"
    );
}
