use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use operations::{List, Operation, Read, Reason};
use timestamp::{Clock as _, UnixMillis};

use super::{Agent, Counted, KeptCounters, Limits, Scope, Span, Throttle, ThrottleSource};
use crate::testing::{TestClock, caller, limited, path, run, write};
use crate::{Admission, Choice, Gateway, Refusal, Review, Reviewer};
use policy::{Caller, Policy};

/// A profile whose `read` may be called `read` times a minute, and whose runs have `run` calls.
fn policy(read: &str, run: &str) -> Policy {
    limited(&format!(
        "profiles:
  p:
    operations: {{read: allow, list: allow, write: ask}}
    rate_limits:
      operations:
        default: {{minute: 100, hour: 100, day: 100}}
        read: {read}
      run: {run}
      principal: {WIDE}
"
    ))
}

const WIDE: &str = "{minute: unlimited, hour: unlimited, day: unlimited}";

fn reading() -> Operation {
    Operation::Read(Read::new(path("a")))
}

fn listing() -> Operation {
    Operation::List(List::new(path(".")))
}

fn ask(gateway: &Gateway, caller: &Caller, operation: Operation) -> Result<(), Refusal> {
    match gateway.admit(&gateway.policy(), &run("p"), caller, "call", operation) {
        Admission::Refuse(refusal) => Err(refusal),
        Admission::Permit(_) | Admission::Ask(_) => Ok(()),
    }
}

fn of_uid_1000(id: &str) -> Agent {
    Agent { principal: "uid:1000".into(), id: id.into() }
}

fn agent(name: &str, run_id: &str) -> Caller {
    Caller { agent_id: name.into(), run_id: run_id.into(), ..caller("director") }
}

/// Calls that count in each window of a scope.
fn used(gateway: &Gateway, scope: Scope) -> [u32; 3] {
    gateway
        .limits()
        .usage(scope, &limited("").profile("strict").unwrap().rate_limits.run)
        .windows
        .map(|window| window.used)
}

fn reads_of(name: &str) -> Scope {
    Scope::Operation { principal: "uid:1000".into(), agent_id: name.into(), operation: "read".into() }
}

#[test]
fn the_strict_profile_has_the_limits_of_the_seed() {
    let policy = limited("");
    let limits = &policy.profile("strict").unwrap().rate_limits;
    let of = |name| {
        let quota = limits.operation(name).1;
        Span::ALL.map(|span| quota.of(span).calls().unwrap())
    };
    assert_eq!(of("read"), [30, 500, 5_000]);
    assert_eq!(of("write"), [10, 100, 500]);
    assert_eq!(of("exec"), [5, 50, 200]);
    assert_eq!(of("git.commit"), [20, 200, 1_000]);
    let silent = limited("profiles: {p: {operations: {read: allow}}}");
    assert_eq!(&silent.profile("p").unwrap().rate_limits, limits, "what a policy does not say is strict");
}

#[test]
fn a_refusal_names_the_limit_and_its_wait_is_true() {
    let clock = TestClock::new();
    let gateway = Gateway::new(policy("{minute: 2, hour: 3, day: 3}", WIDE), clock.clone());
    let alice = agent("alice", "run-1");
    ask(&gateway, &alice, reading()).unwrap();
    clock.advance(Duration::from_secs(10));
    ask(&gateway, &alice, reading()).unwrap();
    clock.advance(Duration::from_millis(700));

    let refusal = ask(&gateway, &alice, reading()).unwrap_err();
    assert_eq!(refusal.reason, Reason::RateLimited);
    assert_eq!(refusal.rule, "profile p: rate_limits.operations.read.minute");
    assert_eq!(refusal.retry_after, Some(Duration::from_millis(49_300)));
    assert_eq!(
        refusal.message,
        "rate limit: this agent may make 2 `read` calls in any minute; try again in 50 s, or do more with each call"
    );
    clock.advance(Duration::from_millis(49_299));
    assert_eq!(ask(&gateway, &alice, reading()).unwrap_err().retry_after, Some(Duration::from_millis(1)));
    clock.advance(Duration::from_millis(1));
    ask(&gateway, &alice, reading()).unwrap();
    // The longer window has the last word.
    clock.advance(Duration::from_secs(60));
    let refusal = ask(&gateway, &alice, reading()).unwrap_err();
    assert_eq!(refusal.rule, "profile p: rate_limits.operations.read.day");
    assert!(refusal.message.contains("try again in 24 h"), "{}", refusal.message);
}

#[test]
fn scopes_are_counted_apart() {
    let gateway = Gateway::new(policy("{minute: 1, hour: 1, day: 1}", WIDE), TestClock::new());
    ask(&gateway, &agent("alice", "run-1"), reading()).unwrap();
    ask(&gateway, &agent("alice", "run-1"), listing()).unwrap();
    ask(&gateway, &agent("bob", "run-2"), reading()).unwrap();
    let elsewhere = Caller { principal: "uid:7".into(), ..agent("alice", "run-3") };
    ask(&gateway, &elsewhere, reading()).unwrap();
    assert!(ask(&gateway, &agent("alice", "run-4"), reading()).is_err(), "another run is the same agent");
    assert_eq!(used(&gateway, Scope::Principal("uid:1000".into())), [3; 3]);
    assert_eq!(used(&gateway, Scope::Run("run-1".into())), [2; 3]);
}

#[test]
fn refusal_by_one_window_does_not_use_the_others() {
    let gateway = Gateway::new(
        policy("{minute: 5, hour: 5, day: 5}", "{minute: 2, hour: 2, day: 2}"),
        TestClock::new(),
    );
    let alice = agent("alice", "run-1");
    ask(&gateway, &alice, reading()).unwrap();
    ask(&gateway, &alice, reading()).unwrap();
    for _ in 0..50 {
        let refusal = ask(&gateway, &alice, reading()).unwrap_err();
        assert_eq!(refusal.rule, "profile p: rate_limits.run.day");
    }
    assert_eq!(used(&gateway, reads_of("alice")), [2; 3]);
    assert_eq!(used(&gateway, Scope::Principal("uid:1000".into())), [2; 3]);
}

#[test]
fn earlier_refusals_do_not_use_rate_limits() {
    let gateway = Gateway::new(policy("{minute: 5, hour: 5, day: 5}", WIDE), TestClock::new());
    let nobody = Caller { role: "nobody".into(), ..agent("alice", "run-1") };
    let protected = Operation::Write(write(".git/config"));
    for _ in 0..50 {
        assert_eq!(ask(&gateway, &nobody, reading()).unwrap_err().reason, Reason::PermissionDenied);
        assert!(ask(&gateway, &agent("alice", "run-1"), protected.clone()).is_err());
    }
    assert_eq!(used(&gateway, reads_of("alice")), [0; 3]);
    assert_eq!(used(&gateway, Scope::Run("run-1".into())), [0; 3]);
}

#[test]
fn a_call_that_asks_counts_once() {
    let gateway = Gateway::new(policy(WIDE, "{minute: 1, hour: 1, day: 1}"), TestClock::new());
    let alice = agent("alice", "run-1");
    let Admission::Ask(ticket) =
        gateway.admit(&gateway.policy(), &run("p"), &alice, "call", Operation::Write(write("a")))
    else {
        panic!("does not ask")
    };
    let review = Review { operation_json: "{}".into(), preview: "+hi".into(), ..Review::default() };
    let approval = gateway.request_approval(&ticket, review, None).unwrap();
    let reviewer =
        Reviewer { principal: "uid:1".into(), level: policy::Level::Approver, may_decide_own: false };
    gateway
        .decide(&approval.approval_id, &reviewer, &crate::approvals::Ballot::once(Choice::Approve, ""))
        .unwrap();
    // The window is full, and the call that filled it runs.
    let _permit = gateway.redeem(&approval.approval_id, &ticket).unwrap();
    assert_eq!(used(&gateway, Scope::Run("run-1".into())), [1; 3]);
    assert_eq!(ask(&gateway, &alice, reading()).unwrap_err().reason, Reason::RateLimited);
}

#[test]
fn a_new_policy_applies_at_once_to_counted_calls() {
    let clock = TestClock::new();
    let gateway = Gateway::new(policy(WIDE, WIDE), clock.clone());
    let alice = agent("alice", "run-1");
    for _ in 0..10 {
        ask(&gateway, &alice, reading()).unwrap();
        clock.advance(Duration::from_secs(5));
    }
    gateway.reload(policy("{minute: 4, hour: 100, day: 100}", WIDE));
    // Seven have to go first, the last of them 30 s after the first.
    let refusal = ask(&gateway, &alice, reading()).unwrap_err();
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(60 + 30 - 50)));
    clock.advance(Duration::from_secs(40));
    ask(&gateway, &alice, reading()).unwrap();
    assert!(ask(&gateway, &alice, reading()).is_err());
    gateway.reload(policy("{minute: 5, hour: 100, day: 100}", WIDE));
    ask(&gateway, &alice, reading()).unwrap();
}

#[test]
fn sixty_four_simultaneous_callers_get_exactly_the_limit() {
    const LIMIT: u32 = 1_000;
    let limit = format!("{{minute: {LIMIT}, hour: {LIMIT}, day: {LIMIT}}}");
    for (read, run) in [(limit.as_str(), WIDE), (WIDE, limit.as_str())] {
        let gateway = Gateway::new(policy(read, run), TestClock::new());
        let admitted = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let asked = ask(&gateway, &agent("alice", "run-1"), reading());
                        admitted.fetch_add(u32::from(asked.is_ok()), Ordering::Relaxed);
                        // Others at the same time, whose counters are in other shards.
                        let _ = ask(&gateway, &agent("bob", "run-2"), reading());
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), LIMIT);
        assert_eq!(used(&gateway, reads_of("alice")), [LIMIT; 3]);
        assert_eq!(used(&gateway, Scope::Run("run-1".into())), [LIMIT; 3]);
    }
}

#[test]
fn setting_the_wall_clock_changes_nothing() {
    let clock = TestClock::new();
    let gateway = Gateway::new(policy("{minute: 1, hour: 10, day: 10}", WIDE), clock.clone());
    let alice = agent("alice", "run-1");
    ask(&gateway, &alice, reading()).unwrap();
    clock.advance(Duration::from_secs(20));
    for moment in [0, 5, u64::MAX / 2, 1_000_000_000] {
        clock.set(UnixMillis(moment));
        let refusal = ask(&gateway, &alice, reading()).unwrap_err();
        assert_eq!(refusal.retry_after, Some(Duration::from_secs(40)));
    }
    clock.advance(Duration::from_secs(40));
    ask(&gateway, &alice, reading()).unwrap();
}

#[test]
fn memory_is_bounded_and_nothing_that_counts_is_forgotten() {
    let clock = TestClock::new();
    let gateway = Gateway::new(policy("{minute: 2, hour: 2, day: 2}", WIDE), clock.clone());
    for wave in 0..5 {
        for i in 0..10_000 {
            ask(&gateway, &agent(&format!("agent-{wave}-{i}"), &format!("run-{wave}-{i}")), reading())
                .unwrap();
        }
        let counters = gateway.limits().table.len();
        assert!((20_001..=45_000).contains(&counters), "{counters} of 20,001 that count");
        assert_eq!(used(&gateway, reads_of(&format!("agent-{wave}-17"))), [1; 3]);
        clock.advance(Duration::from_secs(24 * 3_600));
    }
}

#[test]
fn more_agents_than_can_be_counted_are_refused_and_the_others_go_on() {
    let clock = TestClock::new();
    let gateway = Gateway::new(policy(WIDE, WIDE), clock);
    let early = agent("early", "run");
    ask(&gateway, &early, reading()).unwrap();
    let crowd = |i: u32| ask(&gateway, &agent(&format!("agent-{i}"), &format!("run-{i}")), reading());
    let refused = (0..200_000).find_map(|i| crowd(i).err()).expect("all were counted");
    assert_eq!((refused.reason, refused.rule.as_str()), (Reason::Overloaded, "rate_limits"));
    ask(&gateway, &early, reading()).unwrap();
}

#[test]
fn a_throttled_agent_has_less_until_the_throttle_ends() {
    let clock = TestClock::new();
    let gateway = Gateway::new(policy(WIDE, WIDE), clock.clone());
    let (alice, bob) = (agent("alice", "run-1"), agent("bob", "run-2"));
    for _ in 0..50 {
        ask(&gateway, &alice, reading()).unwrap();
    }
    let until = clock.now().after(Duration::from_secs(90));
    gateway.limits().throttle(
        ThrottleSource::Operator,
        &of_uid_1000("alice"),
        Throttle { per_minute: 2, until },
    );
    ask(&gateway, &alice, reading()).unwrap();
    ask(&gateway, &alice, listing()).unwrap();
    let refusal = ask(&gateway, &alice, reading()).unwrap_err();
    assert_eq!((refusal.rule.as_str(), refusal.retry_after), ("throttle", Some(Duration::from_secs(60))));
    ask(&gateway, &bob, reading()).unwrap();
    // Another principal's agent of this name is another agent.
    let namesake = Caller { principal: "uid:7".into(), ..agent("alice", "run-3") };
    for _ in 0..5 {
        ask(&gateway, &namesake, reading()).unwrap();
    }
    // A milder one does not loosen it; a stricter one holds at once, and until the later end.
    gateway.limits().throttle(
        ThrottleSource::Operator,
        &of_uid_1000("alice"),
        Throttle { per_minute: 500, until: clock.now() },
    );
    assert!(ask(&gateway, &alice, reading()).is_err());
    let both = gateway.limits().throttle(
        ThrottleSource::Operator,
        &of_uid_1000("alice"),
        Throttle { per_minute: 0, until: clock.now() },
    );
    assert_eq!(both, Throttle { per_minute: 0, until });
    assert_eq!(gateway.limits().throttles(), [(of_uid_1000("alice"), ThrottleSource::Operator, both)]);
    let refusal = ask(&gateway, &alice, reading()).unwrap_err();
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(90)));
    clock.advance(Duration::from_millis(89_999));
    assert_eq!(ask(&gateway, &alice, reading()).unwrap_err().retry_after, Some(Duration::from_millis(1)));
    clock.advance(Duration::from_millis(1));
    ask(&gateway, &alice, reading()).unwrap();
    assert!(gateway.limits().throttles().is_empty());
    assert!(!gateway.limits().lift_throttle(ThrottleSource::Operator, &of_uid_1000("alice")));
}

#[test]
fn an_alerts_end_leaves_the_operators_throttle() {
    let clock = TestClock::new();
    let gateway = Gateway::new(policy(WIDE, WIDE), clock.clone());
    let (alice, limits) = (of_uid_1000("alice"), gateway.limits());
    let until = clock.now().after(Duration::from_secs(600));
    let per_minute = || ask_until_refused(&gateway);
    limits.throttle(ThrottleSource::Operator, &alice, Throttle { per_minute: 5, until });
    assert_eq!(per_minute(), 5);
    limits.throttle(ThrottleSource::Alert, &alice, Throttle { per_minute: 2, until });
    clock.advance(Duration::from_secs(120));
    assert_eq!(per_minute(), 2, "the stricter one applies");
    assert!(limits.lift_throttle(ThrottleSource::Alert, &alice));
    clock.advance(Duration::from_secs(120));
    assert_eq!(per_minute(), 5);
    // Nor does the operator's end lift what an alert asked for.
    limits.throttle(ThrottleSource::Alert, &alice, Throttle { per_minute: 2, until });
    assert!(limits.lift_throttle(ThrottleSource::Operator, &alice));
    clock.advance(Duration::from_secs(120));
    assert_eq!(per_minute(), 2);
    assert!(limits.lift_throttle(ThrottleSource::Alert, &alice));
    assert!(limits.throttles().is_empty());
}

/// Returns the number of calls that alice may make before one is refused.
fn ask_until_refused(gateway: &Gateway) -> usize {
    let alice = agent("alice", "run-1");
    (0..100).take_while(|_| ask(gateway, &alice, reading()).is_ok()).count()
}

fn counted(sequence: u64, at: UnixMillis) -> Counted<'static> {
    Counted { sequence, at, principal: "uid:1000", agent_id: "alice", run_id: "run-1", operation: "read" }
}

#[test]
fn a_copy_and_the_intents_since_give_the_same_counters() {
    let clock = TestClock::new();
    clock.set(UnixMillis(1_700_000_000_000));
    let gateway = Gateway::new(policy("{minute: 6, hour: 100, day: 100}", WIDE), clock.clone());
    let alice = agent("alice", "run-1");
    for _ in 0..3 {
        ask(&gateway, &alice, reading()).unwrap();
        clock.advance(Duration::from_secs(3));
    }
    let kept = gateway.limits().keep(|| 3);
    let written = serde_json::to_string(&kept).unwrap();
    clock.advance(Duration::from_secs(1));
    let late = clock.now();
    clock.advance(Duration::from_secs(20));

    // Another daemon, whose uptime begins anew.
    let next = TestClock::new();
    next.set(clock.now());
    let gateway = Gateway::new(policy("{minute: 6, hour: 100, day: 100}", WIDE), next.clone());
    let kept: KeptCounters = serde_json::from_str(&written).unwrap();
    assert_eq!(kept.sequence, 3);
    let replay = gateway.limits().restore(kept);
    for sequence in 2..=5 {
        replay.intent(counted(sequence, late));
    }
    assert_eq!(used(&gateway, reads_of("alice")), [5; 3], "2 and 3 are in the copy");
    assert_eq!(used(&gateway, Scope::Principal("uid:1000".into())), [5; 3]);
    ask(&gateway, &alice, reading()).unwrap();
    // The first one was made 30 s ago.
    let refusal = ask(&gateway, &alice, reading()).unwrap_err();
    assert_eq!(refusal.retry_after, Some(Duration::from_secs(30)));
}

#[test]
fn a_clock_that_was_set_back_without_a_daemon_resets_no_counter() {
    let clock = TestClock::new();
    clock.set(UnixMillis(1_700_000_000_000));
    let limits = Limits::new(clock.clone());
    let future = UnixMillis(1_800_000_000_000);
    limits.restore(KeptCounters::default()).intent(counted(1, future));
    let quota = limited("").profile("strict").unwrap().rate_limits.run;
    let window = limits.usage(reads_of("alice"), &quota).windows[0];
    assert_eq!((window.used, window.empty_at), (1, Some(clock.now().after(Duration::from_secs(60)))));
    // Nor does one that says the distant past bring back what is over.
    limits.restore(KeptCounters::default()).intent(counted(2, UnixMillis(0)));
    assert_eq!(limits.usage(reads_of("alice"), &quota).windows[2].used, 1);
}

/// A daemon that comes after one of which `at` was the last moment, by a clock that was set by so many seconds meanwhile.
fn next_daemon(at: UnixMillis, set_by: i64) -> (Arc<TestClock>, Gateway) {
    let clock = TestClock::new();
    clock.set(UnixMillis(at.0.saturating_add_signed(set_by * 1_000)));
    let gateway = Gateway::new(policy("{minute: 3, hour: 3, day: 3}", WIDE), clock.clone());
    (clock, gateway)
}

#[test]
fn a_clock_that_is_set_without_a_daemon_expires_only_that_time() {
    const DAY: i64 = 86_400;
    let clock = TestClock::new();
    clock.set(UnixMillis(1_700_000_000_000));
    let gateway = Gateway::new(policy("{minute: 3, hour: 3, day: 3}", WIDE), clock.clone());
    let alice = agent("alice", "run-1");
    for _ in 0..3 {
        ask(&gateway, &alice, reading()).unwrap();
        clock.advance(Duration::from_secs(20));
    }
    let kept = gateway.limits().keep(|| 3);
    let throttle = Throttle { per_minute: 0, until: clock.now().after(Duration::from_secs(600)) };
    // Not set, back by a little, by a year, to 1970, forward by an hour and by two days; what counts in each window then. The
    // first call has left its minute before.
    for (set_by, expected) in [
        (0, [2, 3, 3]),
        (-30, [2, 3, 3]),
        (-365 * DAY, [2, 3, 3]),
        (-1_700_000_000, [2, 3, 3]),
        (3_600, [0, 0, 3]),
        (2 * DAY, [0, 0, 0]),
    ] {
        let (next, gateway) = next_daemon(clock.now(), set_by);
        gateway.limits().restore(kept.clone());
        assert_eq!(used(&gateway, reads_of("alice")), expected, "{set_by}");
        assert_eq!(ask(&gateway, &alice, reading()).is_ok(), expected[2] == 0, "{set_by}");
        // Nor does anything count for longer than a whole window from now on.
        next.advance(Duration::from_secs(86_400 + 86_400 / 32));
        assert_eq!(used(&gateway, reads_of("alice")), [0; 3], "{set_by}");

        let (next, gateway) = next_daemon(clock.now(), set_by);
        let left = throttle.taken_up(clock.now(), next.now());
        gateway.limits().throttle(ThrottleSource::Operator, &of_uid_1000("alice"), left);
        let longest = u64::try_from(600 - set_by.max(0)).unwrap_or(0);
        let wait = ask(&gateway, &alice, reading()).err().and_then(|refusal| refusal.retry_after);
        assert_eq!(wait.unwrap_or_default(), Duration::from_secs(longest), "{set_by}");
    }
}

#[test]
fn an_invalid_copy_is_ignored() {
    let clock = TestClock::new();
    let limits = Limits::new(clock.clone());
    let far = UnixMillis(u64::MAX);
    let grains = vec![(far, UnixMillis(0), u32::MAX), (UnixMillis(0), far, 7), (clock.now(), clock.now(), 0)];
    let many = (0..100_000).map(|i| (UnixMillis(i), UnixMillis(i), 1)).collect();
    let kept = super::Kept { scope: reads_of("alice"), sequence: 9, windows: [grains.clone(), grains, many] };
    let replay = limits.restore(KeptCounters { sequence: 1, counters: vec![kept] });
    replay.intent(counted(10, far));
    let quota = limited("").profile("strict").unwrap().rate_limits.run;
    let usage = limits.usage(reads_of("alice"), &quota);
    assert!(usage.windows[0].used > 0 && usage.windows[0].room_at.is_some());
    clock.advance(Duration::from_secs(2 * 24 * 3_600));
    assert_eq!(limits.usage(reads_of("alice"), &quota).windows.map(|window| window.used), [0; 3]);
}

#[test]
fn counters_are_shared_by_all_users_of_the_gateway() {
    let gateway = Arc::new(Gateway::new(policy("{minute: 1, hour: 1, day: 1}", WIDE), TestClock::new()));
    let other = Arc::clone(&gateway);
    std::thread::spawn(move || ask(&other, &agent("alice", "run-1"), reading()).unwrap()).join().unwrap();
    assert!(ask(&gateway, &agent("alice", "run-2"), reading()).is_err());
}
