use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use egress_rules::{Bound, Budget, MicroUsd};
use timestamp::Timestamp;

use crate::database::Database;
use crate::{By, Day, Exceeded, KEPT_DAYS, Ledger, Price, Prices, Scope, Tokens, Unit, Unreadable, Who};

pub(crate) fn noon() -> Timestamp {
    "2026-11-29T12:00:00.000000000Z".parse().unwrap()
}

pub(crate) fn open(directory: &Path, prices: Prices) -> Ledger {
    Ledger::open_at(directory, prices, noon()).unwrap()
}

fn close(ledger: Ledger) {
    ledger.write();
    drop(ledger);
}

pub(crate) fn who(run: &str) -> Who {
    Who { run: run.to_owned(), principal: "uid:1000".to_owned() }
}

pub(crate) fn tokens(input: u64, output: u64) -> Tokens {
    Tokens { input, output, ..Tokens::default() }
}

fn of_requests(requests: u64) -> Bound {
    Bound { requests: Some(requests), ..Bound::default() }
}

pub(crate) fn of_tokens(tokens: u64) -> Bound {
    Bound { tokens: Some(tokens), ..Bound::default() }
}

fn of_usd(micro_usd: u64) -> Bound {
    Bound { usd: Some(MicroUsd(micro_usd)), ..Bound::default() }
}

pub(crate) fn of_run(run: Bound) -> Budget {
    Budget { run, ..Budget::default() }
}

/// A dollar for a million tokens.
pub(crate) fn priced(model: &str) -> Prices {
    let dollar = MicroUsd(1_000_000);
    let price = Price { input: dollar, output: dollar, cached_input: None, cache_write: None };
    Prices::new([(model.to_owned(), price)].into())
}

#[test]
fn requests_that_come_at_once_do_not_pass_a_bound_of_requests_together() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let budget = Budget { day: of_requests(50), ..of_run(of_requests(1_000)) };
    let admitted = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..200 {
            let (ledger, budget, admitted) = (&ledger, &budget, &admitted);
            scope.spawn(move || {
                if ledger.admit_one(&who(&(number % 4).to_string()), budget, noon()).is_ok() {
                    admitted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 50);
    let refused = ledger.admit_one(&who("9"), &budget, noon()).unwrap_err();
    let Exceeded::UsedUp(bound) = refused else { panic!("{refused:?}") };
    assert_eq!((bound.scope, bound.unit, bound.used, bound.limit), (Scope::Day, Unit::Requests, 50, 50));
}

#[test]
fn a_bound_of_tokens_is_passed_by_no_more_than_the_requests_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let budget = of_run(of_tokens(100));
    for _ in 0..3 {
        ledger.admit_one(&who("r"), &budget, noon()).unwrap();
    }
    for _ in 0..3 {
        ledger.report(&who("r"), &budget, "m", &tokens(40, 20), true, noon());
    }
    assert_eq!(ledger.of_run("r").tokens.total(), 180);
    let refused = ledger.admit_one(&who("r"), &budget, noon()).unwrap_err().to_string();
    assert!(refused.contains("180 of 100 tokens by this run."), "{refused}");
    assert!(ledger.admit_one(&who("other"), &budget, noon()).is_ok(), "a run has its own bound");
}

#[test]
fn bounds_of_days_begin_anew_at_midnight_of_utc_and_those_of_runs_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let budget = Budget { principal_day: of_requests(1), ..of_run(of_requests(2)) };
    let last: Timestamp = "2026-11-29T23:59:59.999999999Z".parse().unwrap();
    let next = last.after(Duration::from_nanos(1));
    assert!(ledger.admit_one(&who("r"), &budget, last).is_ok());
    let refused = ledger.admit_one(&who("r"), &budget, last).unwrap_err().to_string();
    assert!(refused.contains("until 2026-11-30 00:00 UTC"), "{refused}");
    assert!(ledger.admit_one(&who("r"), &budget, next).is_ok());
    let set_back = ledger.admit_one(&who("s"), &budget, last);
    assert!(set_back.is_err(), "a clock that is set back opens no day again");
    let after = ledger.admit_one(&who("r"), &budget, next.after(Duration::from_secs(86_400))).unwrap_err();
    assert!(matches!(after, Exceeded::UsedUp(bound) if bound.scope == Scope::Run), "{after:?}");
}

#[test]
fn a_clock_that_was_ahead_by_days_leaves_the_day_and_the_use_of_others_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let budget = Budget { principal_day: of_requests(2), ..Budget::default() };
    let ahead = noon().after(Duration::from_secs(900 * 86_400));
    let admits = |now| ledger.admit_one(&who("r"), &budget, now).is_ok();
    assert!(admits(noon()) && admits(ahead) && admits(ahead) && !admits(ahead));
    assert!(admits(noon()), "it goes on where it was");
    let refused = ledger.admit_one(&who("r"), &budget, noon()).unwrap_err().to_string();
    assert!(refused.contains("until 2026-11-30 00:00 UTC"), "{refused}");
    let requests = |now| {
        let day = Day::of(now);
        ledger.report_of_days((day, day), None, By::Day).unwrap().total.requests
    };
    assert_eq!((requests(noon()), requests(ahead)), (2, 2));
    // Each day of them goes on when it comes again.
    assert!(!admits(ahead) && !admits(noon()));
    assert!(admits(noon().after(Duration::from_secs(86_400))));
    assert_eq!((requests(noon()), requests(ahead)), (2, 2));
}

#[test]
fn a_day_that_an_earlier_daemon_has_counted_goes_on_when_a_clock_that_was_behind_is_set_right() {
    let directory = tempfile::tempdir().unwrap();
    let budget = Budget { principal_day: of_requests(2), ..Budget::default() };
    let ledger = open(directory.path(), Prices::default());
    ledger.admit_one(&who("r"), &budget, noon()).unwrap();
    close(ledger);
    let behind: Timestamp = "2026-01-01T00:00:00.000000000Z".parse().unwrap();
    let ledger = Ledger::open_at(directory.path(), Prices::default(), behind).unwrap();
    let admits = |now| ledger.admit_one(&who("r"), &budget, now).is_ok();
    assert!(admits(behind) && admits(noon()) && !admits(noon()));
    let requests = |now| {
        let day = Day::of(now);
        ledger.report_of_days((day, day), None, By::Day).unwrap().total.requests
    };
    assert_eq!((requests(behind), requests(noon())), (1, 2));
    let tomorrow = noon().after(Duration::from_secs(86_400));
    assert!(admits(tomorrow) && admits(tomorrow) && !admits(tomorrow), "a day without rows begins at zero");
}

#[test]
fn each_bound_is_warned_of_once_also_if_requests_pass_it() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), priced("m"));
    let run = Bound { requests: Some(5), tokens: Some(100), usd: Some(MicroUsd(1_000)) };
    let budget = Budget { principal_day: of_tokens(1_000_000), ..of_run(run) };
    let mut warned = Vec::new();
    for _ in 0..3 {
        ledger.admit_one(&who("r"), &budget, noon()).unwrap();
        let warnings = ledger.report(&who("r"), &budget, "m", &tokens(20, 10), true, noon());
        warned.push(warnings.into_iter().map(|warning| warning.0.unit).collect::<Vec<_>>());
    }
    assert_eq!(warned, [vec![], vec![], vec![Unit::Tokens]]);
    let wide = of_run(of_requests(5));
    ledger.admit_one(&who("r"), &wide, noon()).unwrap();
    let warnings = ledger.report(&who("r"), &wide, "m", &Tokens::default(), false, noon());
    assert_eq!(warnings.len(), 1);
    assert!(warnings[0].to_string().contains("4 of 5 requests by this run"));
    ledger.admit_one(&who("r"), &wide, noon()).unwrap();
    assert!(ledger.report(&who("r"), &wide, "m", &Tokens::default(), true, noon()).is_empty());
    assert_eq!((ledger.of_run("r").requests, ledger.of_run("r").unreported), (5, 1));
}

#[test]
fn a_model_without_a_price_ends_requests_under_a_bound_in_dollars_until_it_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let budget = of_run(of_usd(10_000_000));
    let ledger = open(directory.path(), priced("cheap"));
    ledger.admit_one(&who("r"), &budget, noon()).unwrap();
    ledger.report(&who("r"), &budget, "new", &tokens(1_000_000, 1_000_000), true, noon());
    let refused = ledger.admit_one(&who("r"), &budget, noon()).unwrap_err();
    assert_eq!(refused, Exceeded::Unpriced { scope: Scope::Run, model: "new".to_owned() });
    assert_eq!(ledger.of_run("r").unpriced, tokens(1_000_000, 1_000_000));
    assert!(ledger.admit_one(&who("r"), &of_run(of_tokens(u64::MAX)), noon()).is_ok());
    close(ledger);

    let ledger = open(directory.path(), priced("other*"));
    assert_eq!(ledger.admit_one(&who("r"), &budget, noon()), Err(refused));
    close(ledger);
    for _ in 0..2 {
        let ledger = open(directory.path(), priced("new*"));
        assert_eq!(ledger.of_run("r").micro_usd, 2_000_000, "earlier tokens have the price");
        assert_eq!(ledger.of_run("r").unpriced, Tokens::default());
        assert!(ledger.admit_one(&who("r"), &budget, noon()).is_ok());
        close(ledger);
    }
}

#[test]
fn a_model_without_a_price_stops_its_run_and_its_principal_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let day = Budget { day: of_usd(1_000_000), ..Budget::default() };
    let is_stopped = |who: &Who, budget: &Budget| {
        let refused = ledger.admit_one(who, budget, noon()).err();
        refused.map(|refused| {
            let Exceeded::Unpriced { scope, model } = refused else { panic!("{refused:?}") };
            (scope, model)
        })
    };
    let (used, other) = (who("r"), Who { run: "o".to_owned(), principal: "uid:7".to_owned() });
    // A client may bound its own run, and stops that one alone.
    let run = of_run(of_usd(1_000_000));
    ledger.report(&used, &run, "new", &tokens(5, 5), true, noon());
    assert_eq!(is_stopped(&used, &run), Some((Scope::Run, "new".to_owned())));
    assert_eq!(is_stopped(&used, &day), Some((Scope::Day, "new".to_owned())));
    assert_eq!(is_stopped(&who("s"), &day), None);

    ledger.report(&used, &day, "newer", &tokens(5, 5), true, noon());
    assert_eq!(is_stopped(&who("s"), &day), Some((Scope::Day, "newer".to_owned())));
    assert_eq!(is_stopped(&who("s"), &run), None);
    assert_eq!(is_stopped(&other, &day), None);
}

#[test]
fn the_name_that_a_refusal_says_can_have_a_price() {
    let directory = tempfile::tempdir().unwrap();
    let budget = of_run(of_usd(10_000_000));
    for (number, model) in ["", "two words", "large-3"].into_iter().enumerate() {
        let run = format!("r{number}");
        let ledger = open(directory.path(), priced("another"));
        ledger.report(&who(&run), &budget, model, &tokens(1, 0), true, noon());
        let refused = ledger.admit_one(&who(&run), &budget, noon()).unwrap_err();
        let Exceeded::Unpriced { model: named, .. } = refused else { panic!("{refused:?}") };
        close(ledger);
        let ledger = open(directory.path(), priced(&named));
        ledger.report(&who(&run), &budget, model, &tokens(1, 0), true, noon());
        assert!(ledger.admit_one(&who(&run), &budget, noon()).is_ok(), "{named}");
        close(ledger);
    }
}

#[test]
fn a_model_without_a_price_matters_only_where_dollars_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let unbounded = Budget::default();
    ledger.admit_one(&who("r"), &unbounded, noon()).unwrap();
    ledger.report(&who("r"), &unbounded, "local", &tokens(5, 5), true, noon());
    assert!(ledger.admit_one(&who("s"), &Budget { day: of_usd(1), ..unbounded }, noon()).is_ok());
}

#[test]
fn counts_outlive_the_daemon_and_a_run_its_days() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), priced("m"));
    let budget = Budget::default();
    for run in ["r", "s"] {
        ledger.admit_one(&who(run), &budget, noon()).unwrap();
        ledger.report(&who(run), &budget, "m", &tokens(u64::MAX, 7), true, noon());
    }
    let (of_run, report) = (ledger.of_run("r"), ledger.report_of_run("r"));
    assert_eq!((of_run.requests, of_run.micro_usd > 0), (1, true));
    ledger.forget("s");
    close(ledger);

    let later = noon().after(Duration::from_secs(3 * 86_400));
    let ledger = Ledger::open_at(directory.path(), priced("m"), later).unwrap();
    assert_eq!((ledger.of_run("r"), ledger.report_of_run("r")), (of_run, report));
    assert_eq!(ledger.of_run("s").requests, 0, "it was deleted");
    let day = Day::of(noon());
    let before = ledger.report_of_days((day, Day::of(later)), None, By::Day).unwrap();
    assert_eq!(before.groups.keys().collect::<Vec<_>>(), ["2026-11-29"]);
    assert_eq!((before.total.requests, before.total.tokens.total()), (2, u64::MAX));
    ledger.retain(|run| run != "r");
    assert_eq!(ledger.of_run("r").requests, 0);
}

#[test]
fn the_writer_writes_without_being_asked() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    ledger.admit_one(&who("r"), &Budget::default(), noon()).unwrap();
    let written = || {
        let mut requests = 0;
        let database = Database::open(&directory.path().join("usage.db")).unwrap();
        database.read_runs(|_, usage| requests += usage.requests).unwrap();
        requests
    };
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while written() != 1 {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn use_is_reported_by_model_principal_and_day_of_one_principal_or_all() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    let (today, next) = (noon(), noon().after(Duration::from_secs(86_400)));
    for (principal, model, at) in
        [("uid:1", "a", today), ("uid:1", "b", today), ("uid:2", "a", today), ("uid:2", "a", next)]
    {
        let who = Who { run: "r".to_owned(), principal: principal.to_owned() };
        ledger.admit_one(&who, &Budget::default(), at).unwrap();
        ledger.report(&who, &Budget::default(), model, &tokens(1, 1), true, at);
    }
    // A request whose response has not come.
    ledger
        .admit_one(&Who { run: "r".to_owned(), principal: "uid:1".to_owned() }, &Budget::default(), next)
        .unwrap();
    let days = (Day::of(today), Day::of(next));
    let requests = |principal, by| {
        let report = ledger.report_of_days(days, principal, by).unwrap();
        let groups = report.groups.into_iter().map(|(name, usage)| (name, usage.requests));
        (report.total.requests, groups.collect::<Vec<_>>())
    };
    let named = |groups: &[(&str, u64)]| {
        groups.iter().map(|(name, requests)| ((*name).to_owned(), *requests)).collect::<Vec<_>>()
    };
    assert_eq!(requests(None, By::Model), (5, named(&[("a", 3), ("b", 1)])));
    assert_eq!(requests(None, By::Principal), (5, named(&[("uid:1", 3), ("uid:2", 2)])));
    assert_eq!(requests(Some("uid:2"), By::Day), (2, named(&[("2026-11-29", 1), ("2026-11-30", 1)])));
    let one_day = ledger.report_of_days((days.1, days.1), None, By::Model).unwrap();
    assert_eq!((one_day.total.requests, one_day.total.tokens.total()), (2, 2));
    let run = ledger.report_of_run("r");
    assert_eq!((run.total.requests, run.groups["a"].requests), (5, 3));
}

#[test]
fn days_are_removed_after_four_hundred_whatever_the_clock_says() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    ledger.admit_one(&who("r"), &Budget::default(), noon()).unwrap();
    close(ledger);
    let file = directory.path().join("usage.db");
    let first_day_after = |days: u64| {
        let later = noon().after(Duration::from_secs(days * 86_400));
        let ledger = Ledger::open_at(directory.path(), Prices::default(), later).unwrap();
        // A day that begins while it is open.
        ledger.admit_one(&who("s"), &Budget::default(), later).unwrap();
        close(ledger);
        Database::open(&file).unwrap().first_day()
    };
    let today = Day::of(noon());
    // Twice, because the second start has the rows of the first.
    for ahead in [4_000, 4_001, 399] {
        assert_eq!(first_day_after(ahead), Some(today), "no day but those of a wrong clock is as new");
    }
    let rows = rusqlite::Connection::open(&file).unwrap();
    rows.execute("DELETE FROM days WHERE day > ?1", [today.number()]).unwrap();
    for before in 1..410 {
        let row =
            "INSERT INTO days (day, principal, model, counts) VALUES (?1, 'uid:1', '', '{\"requests\":1}')";
        rows.execute(row, [today.before(before).number()]).unwrap();
    }
    drop(rows);
    assert_eq!(first_day_after(0), Some(today.before(399)));
    assert_eq!(open(directory.path(), Prices::default()).of_run("r").requests, 1, "a run keeps its own");
}

#[test]
fn the_newest_four_hundred_days_with_use_stay_however_old_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    ledger.admit_one(&who("r"), &Budget::default(), noon()).unwrap();
    close(ledger);
    let (file, today) = (directory.path().join("usage.db"), Day::of(noon()));
    let rows = rusqlite::Connection::open(&file).unwrap();
    for before in 1..KEPT_DAYS + 10 {
        let row =
            "INSERT INTO days (day, principal, model, counts) VALUES (?1, 'uid:1', '', '{\"requests\":1}')";
        rows.execute(row, [today.before(2 * before).number()]).unwrap();
    }
    drop(rows);
    close(open(directory.path(), Prices::default()));
    let first = Database::open(&file).unwrap().first_day();
    assert_eq!(first, Some(today.before(2 * (KEPT_DAYS - 1))));
}

#[test]
fn a_journal_that_a_power_cut_tore_is_repaired() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = open(directory.path(), Prices::default());
    ledger.admit_one(&who("r"), &Budget::default(), noon()).unwrap();
    ledger.write();
    ledger.admit_one(&who("r"), &Budget::default(), noon()).unwrap();
    ledger.write();
    // The state of the disk while the file is open: the journal has what the file lacks.
    let cut = tempfile::tempdir().unwrap();
    for name in ["usage.db", "usage.db-wal"] {
        std::fs::copy(directory.path().join(name), cut.path().join(name)).unwrap();
    }
    let journal = cut.path().join("usage.db-wal");
    let length = std::fs::metadata(&journal).unwrap().len();
    std::fs::File::options().write(true).open(&journal).unwrap().set_len(length - 100).unwrap();

    let repaired = open(cut.path(), Prices::default());
    assert_eq!(repaired.of_run("r").requests, 1, "the last transaction is lost, and no other");
    assert!(repaired.admit_one(&who("r"), &of_run(of_requests(2)), noon()).is_ok());
    assert!(repaired.admit_one(&who("r"), &of_run(of_requests(2)), noon()).is_err());
}

#[test]
fn a_damaged_file_stays_and_requests_under_a_budget_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("usage.db");
    std::fs::write(&file, "this is no database, and no budget begins anew with it".repeat(100)).unwrap();
    let before = std::fs::read(&file).unwrap();
    let ledger = open(directory.path(), Prices::default());
    let refused = ledger.admit_one(&who("r"), &of_run(of_requests(9)), noon());
    assert_eq!(refused, Err(Exceeded::Unreadable));
    assert!(ledger.admit_one(&who("r"), &Budget::default(), noon()).is_ok(), "no budget, nothing to keep");
    assert_eq!(ledger.of_run("r").requests, 1);
    let day = Day::of(noon());
    assert!(matches!(ledger.report_of_days((day, day), None, By::Model), Err(Unreadable::AtStart)));
    close(ledger);
    assert_eq!(std::fs::read(&file).unwrap(), before);

    std::fs::remove_file(&file).unwrap();
    assert!(
        open(directory.path(), Prices::default())
            .admit_one(&who("r"), &of_run(of_requests(9)), noon())
            .is_ok()
    );
}

#[test]
fn a_row_that_cannot_be_read_is_a_damaged_file() {
    let directory = tempfile::tempdir().unwrap();
    close(open(directory.path(), Prices::default()));
    let connection = rusqlite::Connection::open(directory.path().join("usage.db")).unwrap();
    let row = "INSERT INTO runs (run, model, counts) VALUES ('r', 'm', '{\"requests\":-1}')";
    connection.execute(row, []).unwrap();
    drop(connection);
    let ledger = open(directory.path(), Prices::default());
    assert_eq!(ledger.admit_one(&who("s"), &of_run(of_tokens(9)), noon()), Err(Exceeded::Unreadable));
}
