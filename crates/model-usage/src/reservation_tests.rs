use std::time::Duration;

use egress_rules::{Bound, Budget, MicroUsd};

use crate::ledger_tests::{noon, of_run, of_tokens, open, priced, tokens, who};
use crate::{Answer, By, Day, Estimate, Exceeded, Extent, Prices, Settled, Tokens, Who};

fn asked(body_bytes: u64, output: u64) -> Estimate {
    Estimate::new("m".to_owned(), body_bytes, output)
}

fn answer(extent: Extent, tokens: Option<Tokens>) -> Answer {
    let (is_reported, tokens) = (tokens.is_some(), tokens.unwrap_or_default());
    Answer { model: String::new(), tokens, is_reported, extent, body_bytes: 0 }
}

#[test]
fn two_hundred_requests_at_once_pass_a_bound_by_one_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let budget = of_run(of_tokens(1_000));
    let admitted = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..200)
            .map(|_| scope.spawn(|| ledger.admit(&who("r"), &budget, asked(40, 90), noon())))
            .collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect::<Vec<_>>()
    });
    let (passed, refused): (Vec<_>, Vec<_>) = admitted.into_iter().partition(Result::is_ok);
    assert_eq!((passed.len(), refused.len()), (10, 190));
    for refused in refused {
        let refused = refused.unwrap_err();
        assert!(refused.passes_by_itself(), "{refused}");
    }
    for passed in passed {
        ledger.settle(passed.unwrap(), &budget, answer(Extent::Whole, Some(tokens(10, 95))), noon());
    }
    assert_eq!(ledger.of_run("r").tokens.total(), 1_050);
    let refused = ledger.admit(&who("r"), &budget, asked(40, 90), noon()).unwrap_err();
    assert!(matches!(refused, Exceeded::UsedUp(_)), "{refused}");
}

#[test]
fn a_reservation_ends_with_its_request_and_what_was_not_used_is_free_again() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), priced("m"));
    let bound = Bound { usd: Some(MicroUsd(600)), ..of_tokens(1_000) };
    let other = || Who { run: "s".to_owned(), principal: "uid:7".to_owned() };
    for (budget, is_shared) in [
        (of_run(bound), false),
        (Budget { principal_day: bound, ..Budget::default() }, false),
        (Budget { day: bound, ..Budget::default() }, true),
    ] {
        for ended in ["settled", "dropped"] {
            let reservation = ledger.admit(&who("r"), &budget, asked(400, 900), noon()).unwrap();
            let refused = ledger.admit(&who("r"), &budget, asked(4, 1), noon()).unwrap_err();
            let Exceeded::Reserved(held) = refused else { panic!("{refused}") };
            assert!(held.used >= held.limit, "{held:?}");
            assert_eq!(ledger.admit_one(&other(), &budget, noon()).is_err(), is_shared);
            if ended == "settled" {
                ledger.settle(reservation, &budget, answer(Extent::Whole, Some(tokens(1, 1))), noon());
            } else {
                drop(reservation);
            }
            assert_eq!(ledger.admit_one(&who("r"), &budget, noon()), Ok(()), "{ended}");
        }
    }
}

#[test]
fn a_program_that_leaves_is_charged_and_the_model_that_it_asked_for_has_its_price() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), priced("m"));
    let budget = of_run(Bound { usd: Some(MicroUsd(10_000)), ..of_tokens(10_000) });
    let settle = |model: &str, answer| {
        let estimate = Estimate::new(model.to_owned(), 400, 900);
        let reservation = ledger.admit(&who("r"), &budget, estimate, noon()).unwrap();
        ledger.settle(reservation, &budget, answer, noon())
    };
    let settled = settle("m", answer(Extent::Unanswered, None));
    let expected = Settled { model: "m".to_owned(), tokens: tokens(100, 900), warnings: Vec::new() };
    assert_eq!(settled, expected);
    // A model that neither side names costs as much as the dearest.
    let settled = settle("", Answer { body_bytes: 400, ..answer(Extent::Cut, None) });
    assert_eq!(settled.tokens, tokens(100, 100));
    let used = ledger.of_run("r");
    assert_eq!((used.tokens.total(), used.micro_usd, used.unreported), (1_200, 1_200, 2));
    assert_eq!(used.unpriced, Tokens::default());
}

#[test]
fn a_reservation_outlives_midnight_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let budget = Budget { day: of_tokens(100), ..Budget::default() };
    let next = noon().after(Duration::from_secs(86_400));
    let reservation = ledger.admit(&who("r"), &budget, asked(40, 90), noon()).unwrap();
    assert!(ledger.admit_one(&who("s"), &budget, next).is_err(), "it is under way on the next day");
    ledger.settle(reservation, &budget, answer(Extent::Whole, Some(tokens(50, 20))), next);
    assert_eq!(ledger.admit_one(&who("s"), &budget, next), Ok(()));
    let report = ledger.report_of_days((Day::of(next), Day::of(next)), None, By::Day).unwrap();
    assert_eq!(report.total.tokens.total(), 70, "its tokens are those of the day on which they are known");
}

#[test]
fn a_run_takes_no_more_of_the_bounds_of_days_by_what_it_says_than_its_own_bound() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), priced("*"));
    let run = Bound { usd: Some(MicroUsd(50)), ..of_tokens(100) };
    let day = Bound { usd: Some(MicroUsd(1_000)), ..of_tokens(1_000) };
    let budget = Budget { run, day, ..Budget::default() };
    let reservation = ledger.admit(&who("r"), &budget, asked(u64::MAX, u64::MAX), noon()).unwrap();
    assert_eq!(ledger.admit_one(&who("s"), &budget, noon()), Ok(()), "the day has room");
    assert!(ledger.admit(&who("r"), &budget, asked(1, 1), noon()).unwrap_err().passes_by_itself());
    ledger.settle(reservation, &budget, answer(Extent::Unanswered, None), noon());
    let used = ledger.of_run("r");
    assert_eq!((used.tokens.total(), used.micro_usd), (100, 50));
    assert_eq!(ledger.admit_one(&who("s"), &budget, noon()), Ok(()));
    assert!(matches!(ledger.admit_one(&who("r"), &budget, noon()), Err(Exceeded::UsedUp(_))));
}
