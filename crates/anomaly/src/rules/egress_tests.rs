//! Of each rule about connections: what fires it, and what comes near and does not.

use policy::AnomalyRule;

use super::testing::{Tape, ended, shipped};
use crate::seen::{Ended, Ending, Kind, Mark, What};

const SECOND: u64 = 1_000;

fn host(name: &str) -> Mark {
    Mark::of(&[name.as_bytes()])
}

#[test]
fn bytes_that_leave_within_a_window_add_up() {
    let rule = AnomalyRule::EgressVolume;
    let setting = shipped(rule);
    let (mib, window) = (1 << 20, setting.window_s * SECOND);
    let sent = |first: u64, gap: u64, second: u64, run: &str| {
        let mut tape = Tape::default();
        tape.add_in("alice", "1", What::Sent(first)).wait(gap).add_in("alice", run, What::Sent(second));
        tape.fires(rule, &setting)
    };
    assert_eq!(sent(256 * mib, 0, 0, "1"), [1, 2]);
    assert_eq!(sent(200 * mib, window / 2, 56 * mib, "1"), [2]);
    assert_eq!(sent(200 * mib, window / 2, 56 * mib - 1, "1"), [0; 0], "one byte less");
    assert_eq!(sent(200 * mib, window, 56 * mib, "1"), [0; 0], "the window has passed");
    assert_eq!(sent(200 * mib, 0, 56 * mib, "2"), [0; 0], "another run");
    assert_eq!(sent(u64::MAX, 0, u64::MAX, "1"), [1, 2]);
}

#[test]
fn a_secret_and_a_new_host() {
    let rule = AnomalyRule::EgressAfterSecret;
    let setting = shipped(rule);
    let window = setting.window_s * SECOND;
    let secret = || What::Ended(Ended { secret: true, ..ended(Kind::Read, Ending::Succeeded) });
    let files = || What::Connected(host("files.example.org"));
    let after = |gap: u64, what: What, run: &str| {
        let mut tape = Tape::default();
        tape.add_in("alice", "1", secret()).wait(gap).add_in("alice", run, what).fires(rule, &setting)
    };
    assert_eq!(after(window - 1, files(), "1"), [2]);
    assert_eq!(after(window, files(), "1"), [0; 0], "the window has passed");
    assert_eq!(after(0, files(), "2"), [0; 0], "another run");
    assert_eq!(after(0, What::Unreached(host("files.example.org")), "1"), [0; 0], "nothing went out");

    let mut known = Tape::default();
    known.add("alice", files()).wait(SECOND).add("alice", secret()).add("alice", files());
    assert_eq!(known.fires(rule, &setting), [0; 0], "the run knew the host");
    known.add("alice", What::Connected(host("other.example.org"))).add("alice", files());
    assert_eq!(known.fires(rule, &setting), [4], "once, at the first connection");
    known.wait(window * 30).add("alice", secret()).add("alice", files());
    assert_eq!(known.fires(rule, &setting), [4, 7], "a host is forgotten after thirty windows");
}

#[test]
fn many_different_refused_hosts() {
    let rule = AnomalyRule::EgressRefusals;
    let setting = shipped(rule);
    let refused = |count: u64, different: u64, step: u64| {
        let mut tape = Tape::default();
        for number in 0..count {
            let what = What::Unreached(host(&format!("h{}.example.org", number % different)));
            tape.add("alice", what).wait(step);
        }
        tape.fires(rule, &setting)
    };
    assert_eq!(refused(31, 31, SECOND), [30, 31]);
    assert_eq!(refused(29, 29, 0), [0; 0], "one less");
    assert_eq!(refused(300, 29, 0), [0; 0], "again and again the same");
    assert_eq!(refused(60, 60, 3 * SECOND), [0; 0], "over three minutes");
    let mut halves = Tape::default();
    for number in 0..58 {
        let run = ["1", "2"][number % 2];
        halves.add_in("alice", run, What::Unreached(host(&number.to_string())));
    }
    assert_eq!(halves.fires(rule, &setting), [0; 0], "two runs, each for itself");
}

#[test]
fn one_placeholder_elsewhere_and_one_budget_raise_an_alert() {
    for (rule, what, other) in [
        (AnomalyRule::PlaceholderElsewhere, What::Misplaced, What::Spending),
        (AnomalyRule::ModelBudget, What::Spending, What::Misplaced),
    ] {
        let mut tape = Tape::default();
        tape.add_in("alice", "1", other).add_in("alice", "1", What::Unreached(host("files.example.org")));
        assert_eq!(tape.fires(rule, &shipped(rule)), [0; 0], "another event");
        tape.add_in("alice", "1", what);
        assert_eq!(tape.fires(rule, &shipped(rule)), [3]);
    }
}
