//! Output that is read slowly, or not at all.

use std::sync::Arc;
use std::time::Duration;

use operations::{Bounds, Exec, ExecResult, KillMethod, Operation, Reason, ToolFailure};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use worker_protocol::client::{CallSpec, OutputSink, Placement};
use worker_protocol::convert::Reply;

use crate::harness::{Group, Guest, command, given_enough, made, nap, peak_kib, running, sh, until};
use crate::sinks::Gate;

/// What a worker may send before it gets credit.
const WINDOW: u64 = 1 << 20;

/// By itself, at once; by its timeout; leaving something behind.
const ENDS: [&str; 3] = ["true", "sleep 100", "sleep 100 &"];

/// Runs the command with this sink, within this time.
fn watch(
    guest: &Arc<Guest>,
    exec: Exec,
    seconds: u64,
    sink: &Arc<Gate>,
    placement: Option<Arc<dyn Placement>>,
    cancel: &CancellationToken,
) -> JoinHandle<Result<ExecResult, ToolFailure>> {
    let (guest, cancel) = (Arc::clone(guest), cancel.clone());
    let sink: Arc<dyn OutputSink> = Arc::clone(sink) as _;
    tokio::spawn(async move {
        let bounds = Bounds { max_spool_bytes: 4 << 30, max_output_bytes: 1000, ..Bounds::default() };
        let spec = CallSpec {
            operation: &Operation::Exec(exec),
            bounds: &bounds,
            deadline: Duration::from_secs(seconds),
            preview: false,
            output: Some(&sink),
        };
        match guest.client.call(spec, placement, cancel).await.unwrap().outcome {
            Ok(Reply::Command(report)) => Ok(made(*report)),
            Ok(other) => panic!("not of exec: {other:?}"),
            Err(failure) => Err(failure),
        }
    })
}

/// Runs the command that `exec` makes for a limit, within one that lets it get as far as it has to.
async fn watched(
    guest: &Arc<Guest>,
    exec: impl Fn(Duration) -> Exec,
    sink: &Arc<Gate>,
    is_far: impl Fn(&ExecResult) -> bool,
) -> ExecResult {
    let run = async |limit: Duration| {
        watch(guest, exec(limit), limit.as_secs(), sink, None, &CancellationToken::new()).await.unwrap()
    };
    let is_far = |done: &Result<ExecResult, ToolFailure>| {
        done.as_ref().map_or_else(|failure| failure.reason != Reason::TimedOut, &is_far)
    };
    given_enough(Duration::from_secs(1), run, is_far).await.unwrap()
}

#[tokio::test]
async fn a_flood_through_a_slow_reader_is_whole_and_uses_no_memory() {
    const FLOOD: u64 = 1 << 30;
    let guest = Arc::new(Guest::start().await);
    let own = std::process::id();
    let before = peak_kib(own);
    let gate = Arc::new(Gate::slow(16));
    let flood = Exec { timeout: Duration::from_secs(110), ..sh(&format!("head -c {FLOOD} /dev/zero")) };
    let flooding = watch(&guest, flood, 110, &gate, None, &CancellationToken::new());
    for _ in 0..10 {
        assert_eq!(guest.ran(command(&["echo", "quick"])).await.stdout, "quick\n");
    }
    let done = flooding.await.unwrap().unwrap();
    assert_eq!((done.exit_code, done.stdout_bytes, done.timed_out), (Some(0), FLOOD, false));
    assert_eq!(gate.counts(), (FLOOD, 0));
    assert!(peak_kib(guest.pid) < 16 * 1024, "the guest: {} KiB", peak_kib(guest.pid));
    assert!(peak_kib(own) < before + 32 * 1024, "here: {} KiB after {before}", peak_kib(own));
}

#[tokio::test]
async fn flow_counts_agree_under_random_ends() {
    // Odd numbers of bytes, ends and paces that meet in many ways; a disagreement would close the stream for all.
    let guest = Arc::new(Guest::patient(Duration::from_secs(3)).await);
    for rounds in [0..24, 24..48] {
        let rounds: Vec<_> = rounds.map(|round| tokio::spawn(meet(Arc::clone(&guest), round))).collect();
        for round in rounds {
            round.await.unwrap();
        }
    }
}

async fn meet(guest: Arc<Guest>, round: usize) {
    let (stdout, stderr) = (round as u64 * 40_961 % 1_700_000, round as u64 * 70_001 % 1_300_000);
    let gate = Arc::new(if round.is_multiple_of(3) { Gate::closed() } else { Gate::slow(2) });
    let cancel = CancellationToken::new();
    let end = ENDS[round % 3];
    let begun = guest.project().join(format!("begun-{round}"));
    let script = format!(
        "touch begun-{round}; head -c {stderr} /dev/zero >&2 & head -c {stdout} /dev/zero; wait; {end}"
    );
    let exec = Exec { timeout: Duration::from_millis(200 + round as u64 * 7), ..sh(&script) };
    let call = watch(&guest, exec, 1, &gate, None, &cancel);
    if round.is_multiple_of(4) {
        until(|| {
            call.is_finished() || begun.exists() && (round.is_multiple_of(8) || gate.counts() != (0, 0))
        })
        .await;
        cancel.cancel();
    }
    if round.is_multiple_of(2) {
        gate.open();
    }
    let done = match call.await.unwrap() {
        Ok(result) => result,
        // On a slow machine it may not begin in time.
        Err(failure) => {
            assert!(matches!(failure.reason, Reason::Cancelled | Reason::TimedOut), "{round}: {failure:?}");
            return assert_eq!(gate.counts(), (0, 0));
        }
    };
    let (had_stdout, had_stderr) = gate.counts();
    assert!(had_stdout <= done.stdout_bytes && done.stdout_bytes <= stdout, "{round}: {done:?}");
    assert!(had_stderr <= done.stderr_bytes && done.stderr_bytes <= stderr, "{round}: {done:?}");
    assert_eq!(done.kill.as_ref().unwrap().left, 0);
    if done.exit_code == Some(0) {
        assert_eq!((done.stdout_bytes, done.stderr_bytes), (stdout, stderr), "{round}");
    }
}

#[tokio::test]
async fn slow_reader_delays_only_its_own_command() {
    let guest = Arc::new(Guest::start().await);
    let gate = Arc::new(Gate::closed());
    let stuck = Exec { timeout: Duration::from_secs(110), ..sh("yes & yes >&2 & wait") };
    let calls: Vec<_> =
        (0..4).map(|_| watch(&guest, stuck.clone(), 110, &gate, None, &CancellationToken::new())).collect();
    for i in 0..50 {
        let script = format!("echo {i}; head -c 300000 /dev/zero | tr '\\0' x >&2");
        let done = guest.ran(sh(&script)).await;
        assert_eq!((done.stdout.trim(), done.stderr_bytes), (i.to_string().as_str(), 300_000));
    }
    assert!(calls.iter().all(|call| !call.is_finished()));
    assert!(peak_kib(guest.pid) < 16 * 1024, "{} KiB", peak_kib(guest.pid));
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test]
async fn a_command_that_is_over_waits_for_its_reader() {
    let guest = Arc::new(Guest::start().await);
    let gate = Arc::new(Gate::closed());
    // More than the window; the rest fits into the pipe, so that the command ends before anybody reads.
    let exec = sh("head -c 1100000 /dev/zero; touch over");
    let call = watch(&guest, exec, 20, &gate, None, &CancellationToken::new());
    let over = guest.project().join("over");
    until(|| over.exists()).await;
    assert!(!call.is_finished());
    gate.open();
    let done = call.await.unwrap().unwrap();
    assert_eq!((done.exit_code, done.stdout_bytes), (Some(0), 1_100_000));
    assert_eq!(gate.counts(), (1_100_000, 0));
    assert_eq!(done.kill.as_ref().unwrap().method(), KillMethod::NoneNeeded);
}

#[tokio::test]
async fn unread_output_is_counted() {
    let guest = Arc::new(Guest::patient(Duration::from_secs(3)).await);
    let gate = Arc::new(Gate::closed());
    let script = "head -c 1080000 /dev/zero; head -c 20000 /dev/zero >&2";
    let done = watched(&guest, |_| sh(script), &gate, |done| done.exit_code.is_some()).await;
    assert_eq!((done.exit_code, done.stdout_bytes, done.stderr_bytes), (Some(0), 1_080_000, 20_000));
    assert_eq!(gate.counts(), (0, 0));
}

#[tokio::test]
async fn unread_command_can_be_ended() {
    let guest = Arc::new(Guest::start().await);
    for placed in [false, true] {
        let nap = nap(if placed { 21 } else { 22 });
        let gate = Arc::new(Gate::closed());
        let group = Arc::new(Group::default());
        let placement = placed.then(|| Arc::clone(&group) as Arc<dyn Placement>);
        let cancel = CancellationToken::new();
        let script = format!("sleep {nap} & yes");
        let call = watch(&guest, sh(&script), 60, &gate, placement, &cancel);
        until(|| running(&nap) > 0).await;
        cancel.cancel();
        until(|| running(&nap) == 0).await;
        gate.open();
        let done = call.await.unwrap().unwrap();
        assert_eq!((done.kill.as_ref().unwrap().left, done.timed_out), (0, false));
        // What was sent, and what the pipe held, of which the reader gets as much as it takes credit for in time.
        let (stdout, _) = gate.counts();
        assert!(done.stdout_bytes <= WINDOW + (1 << 20), "{}", done.stdout_bytes);
        assert!(stdout <= done.stdout_bytes, "{stdout} of {}", done.stdout_bytes);
    }
}

#[tokio::test]
async fn timeout_holds_without_a_reader() {
    let guest = Arc::new(Guest::patient(Duration::from_secs(3)).await);
    let gate = Arc::new(Gate::closed());
    let exec = |limit: Duration| Exec { timeout: limit * 7 / 10, ..command(&["yes"]) };
    let done = watched(&guest, exec, &gate, |done| done.stdout_bytes > WINDOW).await;
    assert!(done.timed_out && done.kill.as_ref().unwrap().left == 0, "{done:?}");
    // What was sent, and what the pipe held.
    assert!((WINDOW + 1..=WINDOW + (1 << 20)).contains(&done.stdout_bytes), "{}", done.stdout_bytes);
}
