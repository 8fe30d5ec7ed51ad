//! What deciding over one call costs: validation, permission, risk, rate limits, what alerts impose, and a place among the
//! calls that run; with 10,000 agents, 500 command rules, teams, and as many permissions, measures and throttles in force as a
//! busy installation has.
//!
//! `tests/bench.sh --lane gateway`; `tests/bench/README.md` says how to read it. `--check` makes a missed goal an error.

#![allow(clippy::unwrap_used)] // a benchmark that cannot be set up fails

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cofferdam_gateway::limits::concurrency::{Reservations, Turn, Whole};
use cofferdam_gateway::limits::{Agent, Throttle};
use cofferdam_gateway::{
    Admission, Effect, Gateway, Measure, MeasureScope, Permission, Permissions, Scope, Subject,
};
use jail::SandboxPath;
use operations::{Exec, Operation, Read, Write as WriteFile};
use policy::{Caller, Caps, Policy, RunScope};
use timestamp::{SystemClock, UnixMillis};

const AGENTS: usize = 10_000;
const RULES: usize = 500;
const WARM_UP: usize = 200_000;
const CALLS: usize = 500_000;
const CALLERS: usize = 64;
/// Permissions in force; as many grants as revocations, most of them for agents that are asked about.
const PERMISSIONS: usize = 4_000;
/// Agents whose calls need consent because of an alert, and agents that are throttled.
const ALERTS: usize = 500;
/// Calls that run while others come and go.
const RUNNING: usize = 400;

/// Microseconds: what is asked of the median and of the 99th percentile.
const GOALS: (f64, f64) = (10.0, 50.0);

fn policy() -> Policy {
    let mut yaml = "profiles:
  bench:
    operations: {read: allow, exec: allow, write: allow, list: allow}
    rate_limits:
      operations: {default: {minute: 1000000, hour: 10000000, day: 100000000}}
      run: {minute: 1000000, hour: 10000000, day: 100000000}
      principal: {minute: 100000000, hour: 100000000, day: 100000000}
    exec:
      read_only_commands: true
      default: ask
      rules:
"
    .to_owned();
    for rule in 0..RULES {
        let decision = ["allow", "ask"][rule % 2];
        writeln!(yaml, "        - {{prefix: [tool{rule}, [build, test]], decision: {decision}, justification: rule {rule}}}").unwrap();
    }
    yaml.push_str(
        "  one-program:
    operations: {exec: allow}
    rate_limits:
      operations: {default: {minute: 1000000, hour: 10000000, day: 100000000}}
      run: {minute: 1000000, hour: 10000000, day: 100000000}
      principal: {minute: 100000000, hour: 100000000, day: 100000000}
    exec:
      default: ask
      rules:
",
    );
    for rule in 0..RULES {
        writeln!(yaml, "        - {{prefix: [tool, part{rule}, [build, test]], decision: ask, justification: rule {rule}}}").unwrap();
    }
    let mut files: Vec<(&str, &str)> = Policy::builtin_files().collect();
    yaml.push_str("teams:\n");
    for team in 0..20 {
        writeln!(yaml, "  team{team}: {{agents: [\"agent-{team}*\"], allow: [list], deny: [git.commit]}}")
            .unwrap();
    }
    files.push(("bench.yaml", &yaml));
    Policy::from_files(files).unwrap_or_else(|problems| panic!("{problems}"))
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::parse(text).unwrap()
}

fn exec(argv: &[String]) -> Operation {
    Operation::Exec(Exec::new(&argv[0], &argv[1..]))
}

/// What an agent does: half of it reads, the rest are commands under some rule, read-only commands, and writes.
fn operation(number: usize) -> Operation {
    match number % 8 {
        0..4 => Operation::Read(Read::new(path("src/lib.rs"))),
        4 | 5 => exec(&[format!("tool{}", number * 7 % RULES), "test".to_owned(), "--all".to_owned()]),
        6 => exec(&["find", ".", "-name", "*.rs"].map(str::to_owned)),
        _ => Operation::Write(WriteFile::new(path("src/new.rs"), "fn main() {}\n")),
    }
}

fn callers() -> Vec<Caller> {
    (0..AGENTS)
        .map(|agent| Caller {
            principal: format!("uid:{}", 1_000 + agent % 50),
            agent_id: format!("agent-{agent}"),
            role: "director".to_owned(),
            run_id: format!("0192f0c1-2f3a-7000-8000-{agent:012}"),
        })
        .collect()
}

/// What operators and alerts have put into force beside the policy. None of it refuses a call that is timed.
fn impose(gateway: &Gateway) {
    let now = UnixMillis::now();
    let permission = |number: usize| {
        let grants = number.is_multiple_of(2);
        Permission {
            id: format!("permission-{number}"),
            subject: match number % 100 {
                0..10 => Subject::Team(format!("team{}", number % 20)),
                10 | 11 => Subject::Role("director".to_owned()),
                _ => Subject::Agent(format!("agent-{}", number * 2)),
            },
            effect: if grants { Effect::Grant } else { Effect::Revocation },
            scope: Scope {
                operation: Some(if grants { "exec" } else { "shell" }.to_owned()),
                path: None,
                command: if grants { vec!["tool".to_owned(), number.to_string()] } else { Vec::new() },
            },
            preapproved: false,
            reason: "a benchmark".to_owned(),
            by: "uid:0".to_owned(),
            at: now,
            expires_at: None,
            ended: None,
        }
    };
    gateway.set_permissions(Permissions::of((0..PERMISSIONS).map(permission)));
    let until = now.after(Duration::from_secs(3_600));
    for number in 0..ALERTS {
        let agent = AGENTS / ALERTS * number;
        let (principal, agent_id) = (format!("uid:{}", 1_000 + agent % 50), format!("agent-{agent}"));
        gateway.limits().throttle(
            cofferdam_gateway::limits::ThrottleSource::Operator,
            &Agent { principal: principal.clone(), id: agent_id.clone() },
            Throttle { per_minute: 1_000_000, until },
        );
        gateway.impose(Measure {
            alert_id: format!("alert-{number}"),
            scope: MeasureScope::Agent { principal, agent_id },
            rule: "spike".to_owned(),
            justification: "a benchmark".to_owned(),
            until,
        });
    }
}

/// Whether the call was let through and had a place; what it got is dropped in here.
fn admit(
    gateway: &Gateway,
    places: &Reservations,
    scope: &RunScope,
    caller: &Caller,
    operation: Operation,
) -> bool {
    let id = "0192f0c1-2f3a-7000-8000-000000000000";
    if let Admission::Refuse(_) = black_box(gateway.admit(&gateway.policy(), scope, caller, id, operation)) {
        return false;
    }
    let place =
        places.enter([&caller.run_id, &caller.principal, &caller.principal], &CAPS, Turn::Ordinary, || {
            Box::new(|| {})
        });
    black_box(place).is_ok()
}

/// Wide enough for 64 callers beside those that run.
const CAPS: Caps = Caps { run: 64, principal: 500, waiting: 64, wait_s: 30 };

fn percentile(sorted: &[u64], part: f64) -> f64 {
    // Half a million at the most, and from 0 to 1 of it.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let index = ((sorted.len() - 1) as f64 * part) as usize;
    #[allow(clippy::cast_precision_loss)]
    // no call takes the 104 days from which on nanoseconds would be lost
    let nanos = sorted[index] as f64;
    nanos / 1_000.0
}

/// Each in turn, in nanoseconds, sorted.
fn time(mut job: impl FnMut(usize) -> Box<dyn FnOnce() -> bool>) -> Vec<u64> {
    let mut times = Vec::with_capacity(CALLS);
    for number in 0..WARM_UP + CALLS {
        let job = job(number);
        let began = Instant::now();
        let done = job();
        let took = began.elapsed();
        assert!(done, "a call was refused");
        if number >= WARM_UP {
            times.push(u64::try_from(took.as_nanos()).unwrap());
        }
    }
    times.sort_unstable();
    times
}

fn main() -> ExitCode {
    let check = std::env::args().any(|argument| argument == "--check");
    let gateway = Arc::new(Gateway::new(policy(), Arc::new(SystemClock)));
    impose(&gateway);
    let callers: Arc<[Caller]> = callers().into();
    let places = Arc::new(Reservations::new(Whole { running: 512, waiting: 2_048 }, Arc::new(SystemClock)));
    let running: Vec<_> = callers[..RUNNING]
        .iter()
        .map(|caller| {
            places.enter(
                [&caller.run_id, &caller.principal, &caller.principal],
                &CAPS,
                Turn::Ordinary,
                || Box::new(|| {}),
            )
        })
        .collect();
    assert!(running.iter().all(Result::is_ok));
    let scope = RunScope { profile: "bench".to_owned(), image_id: "sha256:1".to_owned() };
    let table: Arc<HashMap<String, u64>> =
        Arc::new(callers.iter().map(|caller| (caller.agent_id.clone(), 1)).collect());

    // An agent in no order, as the memory of a busy daemon has them.
    let who = |number: usize| number.wrapping_mul(7_919) % AGENTS;
    let decided = time(|number| {
        let (gateway, places) = (gateway.clone(), places.clone());
        let (callers, scope) = (callers.clone(), scope.clone());
        let operation = operation(number);
        Box::new(move || admit(&gateway, &places, &scope, &callers[who(number)], operation))
    });
    let looked = time(|number| {
        let (table, callers) = (table.clone(), callers.clone());
        Box::new(move || {
            let found = table.get(&callers[who(number)].agent_id).copied();
            black_box(found).is_some()
        })
    });

    let narrow = RunScope { profile: "one-program".to_owned(), ..scope.clone() };
    let of_one_program = time(|number| {
        let (gateway, places) = (gateway.clone(), places.clone());
        let (callers, scope) = (callers.clone(), narrow.clone());
        let command = ["tool".to_owned(), format!("part{}", number * 7 % RULES), "test".to_owned()];
        Box::new(move || admit(&gateway, &places, &scope, &callers[who(number)], exec(&command)))
    });

    let next = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|threads| {
        for _ in 0..CALLERS {
            threads.spawn(|| {
                loop {
                    let number = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                    if number >= CALLS {
                        return;
                    }
                    assert!(admit(&gateway, &places, &scope, &callers[who(number)], operation(number)));
                }
            });
        }
    });
    let together = began.elapsed();

    let (median, p99) = (percentile(&decided, 0.5), percentile(&decided, 0.99));
    let lookup = percentile(&looked, 0.5);
    println!("deciding over one call and giving it a place, {CALLS} calls after {WARM_UP}");
    println!(
        "{AGENTS} agents, {RULES} rules, {PERMISSIONS} permissions, {ALERTS} measures and throttles, {RUNNING} running"
    );
    println!("                         median       p99");
    println!("gateway               {median:>6.2} µs {p99:>6.2} µs");
    println!(
        "rules of one program  {:>6.2} µs {:>6.2} µs",
        percentile(&of_one_program, 0.5),
        percentile(&of_one_program, 0.99)
    );
    println!("look-up in a HashMap  {lookup:>6.2} µs {:>6.2} µs", percentile(&looked, 0.99));
    println!("ratio                 {:>6.1}", median / lookup.max(0.001));
    #[allow(clippy::cast_precision_loss)] // half a million
    let rate = CALLS as f64 / together.as_secs_f64();
    println!("{CALLERS} callers at once: {rate:.0} calls a second");
    let met = median <= GOALS.0 && p99 <= GOALS.1;
    println!(
        "goal: median at most {} µs, p99 at most {} µs: {}",
        GOALS.0,
        GOALS.1,
        if met { "met" } else { "missed" }
    );
    if check && !met { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
