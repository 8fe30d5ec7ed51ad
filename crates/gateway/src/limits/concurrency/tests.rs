use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use super::{Busy, Caps, Count, Reservation, Reservations, Together, Turn, Whole};
use crate::testing::TestClock;

const WIDE: Whole = Whole { running: 1_000, waiting: 1_000 };

fn caps(run: u32, principal: u32, waiting: u32) -> Caps {
    Caps { run, principal, waiting, wait_s: 30 }
}

/// A call that does not wait, or is told when it may go on.
fn enter(
    reservations: &Reservations,
    run: &str,
    principal: &str,
    caps: &Caps,
) -> Result<(Reservation, Option<mpsc::Receiver<()>>), Busy> {
    let mut woken = None;
    let reservation = reservations.enter([run, principal, principal], caps, Turn::Ordinary, || {
        let (sender, receiver) = mpsc::channel();
        woken = Some(receiver);
        // Nobody may listen any more.
        Box::new(move || {
            let _ = sender.send(());
        })
    })?;
    Ok((reservation, woken))
}

#[test]
fn sixty_four_callers_at_once_are_never_one_too_many_and_all_get_their_turn() {
    // Of each run, of the principal, and of all: each is the narrowest once.
    for (run, principal, all) in [(5, 64, 64), (64, 7, 64), (64, 64, 9)] {
        let limits = (caps(run, principal, 64), Whole { running: all, waiting: 128 });
        let reservations = Reservations::new(limits.1, TestClock::new());
        let (of_run, of_all) = ([AtomicU32::new(0), AtomicU32::new(0)], AtomicU32::new(0));
        let done = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for caller in 0..64 {
                let (reservations, of_run, of_all, done) =
                    (&reservations, &of_run[caller % 2], &of_all, &done);
                let name = format!("run-{}", caller % 2);
                scope.spawn(move || {
                    for _ in 0..200 {
                        // Of a principal no more wait than may run.
                        let (reservation, woken) = loop {
                            match enter(reservations, &name, "uid:0", &limits.0) {
                                Ok(entered) => break entered,
                                Err(busy) => assert_eq!(busy.scope, Together::Principal),
                            }
                            std::thread::yield_now();
                        };
                        woken.inspect(|woken| woken.recv().unwrap());
                        let (now_of_run, now) = (
                            of_run.fetch_add(1, Ordering::SeqCst) + 1,
                            of_all.fetch_add(1, Ordering::SeqCst) + 1,
                        );
                        assert!(now_of_run <= run && now <= principal.min(all), "{now_of_run} {now}");
                        std::thread::yield_now();
                        of_run.fetch_sub(1, Ordering::SeqCst);
                        of_all.fetch_sub(1, Ordering::SeqCst);
                        drop(reservation);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 64 * 200);
        assert!(reservations.is_forgotten());
    }
}

#[test]
fn no_reservation_leaks_when_sixty_four_callers_give_up() {
    let limits = caps(3, 64, 64);
    let reservations = Reservations::new(Whole { running: 3, waiting: 128 }, TestClock::new());
    let running = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for caller in 0..64_u64 {
            let (reservations, running) = (&reservations, &running);
            scope.spawn(move || {
                for round in 0..300_u64 {
                    let (reservation, woken) = enter(reservations, "run", "uid:0", &limits).unwrap();
                    // Some leave at once, some in the very moment when they are woken, some wait.
                    let patience = Duration::from_micros((caller * 7 + round * 13) % 40);
                    let gives_up = (caller + round) % 3 != 0;
                    let in_time = woken.is_none_or(|woken| {
                        if gives_up { woken.recv_timeout(patience).is_ok() } else { woken.recv().is_ok() }
                    });
                    if !in_time && reservation.waits_for().is_some() {
                        continue;
                    }
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 3);
                    running.fetch_sub(1, Ordering::SeqCst);
                    drop(reservation);
                }
            });
        }
    });
    assert!(reservations.is_forgotten());
    let all: Vec<_> = (0..3).map(|_| enter(&reservations, "run", "uid:0", &limits).unwrap()).collect();
    assert!(all.iter().all(|(_, woken)| woken.is_none()), "all reservations are there");
}

#[test]
fn a_refusal_names_the_full_limit() {
    let clock = TestClock::new();
    let reservations = Reservations::new(Whole { running: 5, waiting: 1 }, clock.clone());
    let mut held = Vec::new();
    let mut fill = |run: &str, principal: &str, caps: &Caps| match enter(&reservations, run, principal, caps)
    {
        Ok((reservation, _)) => {
            held.push(reservation);
            None
        }
        Err(busy) => Some((busy.scope, busy.count, busy.limit)),
    };
    let count = |running, waiting| Count { running, waiting };
    let nobody = Caps { wait_s: 0, ..caps(2, 3, 9) };
    assert_eq!([fill("a", "p", &nobody), fill("a", "p", &nobody)], [None; 2]);
    assert_eq!(fill("a", "p", &nobody), Some((Together::Run, count(2, 0), 2)), "nobody waits");
    assert_eq!(fill("a", "p", &caps(2, 3, 0)), Some((Together::Run, count(2, 0), 2)), "none may wait");
    assert_eq!(fill("b", "p", &nobody), None);
    assert_eq!(fill("c", "p", &nobody), Some((Together::Principal, count(3, 0), 3)));
    assert_eq!([fill("d", "q", &nobody), fill("e", "r", &nobody)], [None; 2]);
    assert_eq!(fill("f", "s", &nobody), Some((Together::Daemon, count(5, 0), 5)));
    assert_eq!(fill("f", "s", &caps(2, 3, 1)), None, "waits");
    assert_eq!(fill("g", "t", &caps(2, 3, 1)), Some((Together::Daemon, count(5, 1), 5)), "the line is full");
}

#[test]
fn a_greedy_tenant_delays_its_own_calls_alone() {
    let reservations = Reservations::new(Whole { running: 2, waiting: 99 }, TestClock::new());
    let limits = caps(9, 99, 99);
    let mut held: Vec<_> = (0..2).map(|_| enter(&reservations, "g", "greedy", &limits).unwrap().0).collect();
    let greedy: Vec<_> = (0..50).map(|_| enter(&reservations, "g", "greedy", &limits).unwrap()).collect();
    let (first, woken) = enter(&reservations, "a", "modest", &limits).unwrap();
    drop(held.pop());
    woken.unwrap().try_recv().expect("the next slot is the modest one's");
    drop(first);
    // One each: then the first in the line.
    let next = greedy[0].1.as_ref().unwrap();
    next.try_recv().expect("no slot stays empty");
    let (_again, woken) = enter(&reservations, "a", "modest", &limits).unwrap();
    drop(held);
    woken.unwrap().try_recv().expect("before the other 49");
    assert!(greedy[1].1.as_ref().unwrap().try_recv().is_err());
}

#[test]
fn tenants_of_many_principals_leave_places_for_others() {
    let reservations = Reservations::new(Whole { running: 1, waiting: 12 }, TestClock::new());
    let enter = |tenant: &str, number: u32| {
        let (run, principal) = (format!("run-{tenant}-{number}"), format!("uid:{tenant}-{number}"));
        let wake = || -> super::Wake { Box::new(|| {}) };
        reservations.enter([&run, &principal, tenant], &caps(9, 9, 9), Turn::Ordinary, wake)
    };
    let mut held = vec![enter("big", 0).unwrap()];
    // Each of its calls is of another principal and another run.
    held.extend((1..50).map_while(|number| enter("big", number).ok()));
    assert_eq!(reservations.of_all().0, Count { running: 1, waiting: 6 }, "half of the line");
    let refused = enter("big", 50).unwrap_err();
    assert_eq!((refused.scope, refused.count.waiting), (Together::Daemon, 6));
    held.extend((0..50).map_while(|number| enter("other", number).ok()));
    assert_eq!(reservations.of_all().0.waiting, 9, "half of the rest");
    held.push(enter("modest", 0).unwrap());
    drop(held);
    assert!(reservations.is_forgotten());
}

#[test]
fn blocked_waiter_does_not_delay_others() {
    let reservations = Reservations::new(Whole { running: 2, waiting: 9 }, TestClock::new());
    let limits = caps(1, 9, 9);
    let (first, _) = enter(&reservations, "a", "p", &limits).unwrap();
    let (_second, woken) = enter(&reservations, "b", "p", &limits).unwrap();
    assert!(woken.is_none());
    let (_of_b, of_b) = enter(&reservations, "b", "p", &limits).unwrap();
    let (_of_c, of_c) = enter(&reservations, "c", "p", &limits).unwrap();
    drop(first);
    assert!(of_b.unwrap().try_recv().is_err(), "its run is full");
    of_c.unwrap().try_recv().expect("there was a slot for it");
}

#[test]
fn the_estimate_is_the_average_remaining_time_for_each_waiting_call() {
    let clock = TestClock::new();
    let reservations = Reservations::new(WIDE, clock.clone());
    let limits = caps(2, 9, 3);
    let mut held = vec![enter(&reservations, "a", "p", &limits).unwrap().0];
    clock.advance(Duration::from_secs(6));
    held.push(enter(&reservations, "a", "p", &limits).unwrap().0);
    clock.advance(Duration::from_secs(2));
    held.extend((0..3).map(|_| enter(&reservations, "a", "p", &limits).unwrap().0));
    // Eight and two seconds: five on average. Three wait, and this one; two share it.
    let busy = enter(&reservations, "a", "p", &limits).unwrap_err();
    assert_eq!(busy.retry_after, Duration::from_secs(10));
    assert_eq!(
        busy.to_string(),
        "too many calls at once: 2 calls of this run run already and 3 wait; try again in about 10 s, or make fewer \
         calls at the same time"
    );
    let last = held.pop().unwrap().waits_for().unwrap();
    assert_eq!((last.count.waiting, last.retry_after), (2, Duration::from_millis(7_500)));
    clock.advance(Duration::from_secs(3_600));
    assert_eq!(
        enter(&reservations, "a", "p", &caps(2, 9, 0)).unwrap_err().retry_after,
        Duration::from_secs(60)
    );
}

#[test]
fn a_call_that_has_consent_is_not_turned_away() {
    let reservations = Reservations::new(Whole { running: 1, waiting: 0 }, TestClock::new());
    let nobody = Caps { run: 1, principal: 1, waiting: 0, wait_s: 0 };
    let (first, _) = enter(&reservations, "a", "p", &nobody).unwrap();
    assert!(enter(&reservations, "a", "p", &nobody).is_err());
    let (sender, woken) = mpsc::channel();
    let wake = || -> super::Wake { Box::new(move || sender.send(()).unwrap()) };
    let consented = reservations.enter(["a", "p", "p"], &nobody, Turn::Consented, wake).unwrap();
    assert_eq!(reservations.of_all().0, Count { running: 1, waiting: 1 });
    drop(first);
    woken.try_recv().unwrap();
    assert!(consented.waits_for().is_none());
}
