//! A terminal for which its run is paused: only its own processes run from before its start until its end.

use std::path::Path;
use std::time::Duration;

use harness::v1::run::State;
use harness::v1::run_hold::Kind;
use harness::v1::{self, TerminalStart, terminal_closed::Reason};
use harness::{Daemon, RunHandle, Setup, calls, process, reason, record};
use serde_json::Value;

use super::{Seat, recorded, runs};
use crate::ticks::{QUIET, counted, counts_beyond};

/// Counts into a file, and would be seen to.
const COUNTS: &str = "while :; do printf x >> ticks; sleep 0.01; done";
/// Reads the environment of every process, which takes the same right as reading its memory. When it finds a shell that has the
/// bait it says so in a file, and on the shell's terminal. It counts the times that it has looked at all.
const THIEF: &str = "exec 2>/dev/null; while :; do printf x >> looked; for p in /proc/[0-9]*; do \
    if tr '\\0' '\\n' < $p/environ | grep -q TERM=bait; then echo $p >> stolen; echo dra''wn > $p/fd/1; fi; done; sleep 0.01; done";

/// Runs whose commands and processes are allowed.
fn setup(config: &str) -> Setup {
    let profile = "profiles:\n  p:\n    workspace: read-write\n    operations: {read: allow, write: allow, exec: allow, process: allow}\n    exec: {default: allow}\n    rate_limits: {operations: {default: {minute: unlimited, hour: unlimited, day: unlimited}}, run: {minute: unlimited, hour: unlimited, day: unlimited}, principal: {minute: unlimited, hour: unlimited, day: unlimited}}\n";
    let roles = "roles: {director: {allow: '*'}}\n".to_owned();
    let policy = vec![("profile.yaml", profile.to_owned()), ("roles.yaml", roles)];
    Setup { config: config.to_owned(), policy, ..Default::default() }
}

fn paused(command: &[&str]) -> TerminalStart {
    let command = command.iter().map(ToString::to_string).collect();
    TerminalStart { command, paused: true, term: "bait".to_owned(), ..Default::default() }
}

/// A run in which a process that stays counts.
async fn counting(daemon: &Daemon, workspace: &Path) -> RunHandle {
    let mut run = daemon.run("p", workspace).await;
    run.start(process::command(&["sh", "-c", COUNTS])).await;
    counts_beyond(workspace, 3).await;
    run
}

async fn stands_still(workspace: &Path) {
    let before = counted(workspace);
    tokio::time::sleep(QUIET).await;
    assert_eq!(counted(workspace), before, "a process of the run went on beside the terminal");
}

async fn goes_on(run: &mut RunHandle, workspace: &Path) {
    counts_beyond(workspace, counted(workspace)).await;
    assert_eq!((run.show().await.state(), run.show().await.holds), (State::Ready, vec![]));
}

fn holds(run: &v1::Run) -> Vec<(Kind, &str)> {
    run.holds.iter().map(|hold| (hold.kind(), hold.cause_id.as_str())).collect()
}

async fn pause(run: &mut RunHandle) {
    let request = v1::PauseRunRequest { run_id: run.id().to_owned() };
    run.clients.runs.pause_run(request).await.unwrap();
}

async fn resume(run: &mut RunHandle) -> v1::Run {
    let request = v1::ResumeRunRequest { run_id: run.id().to_owned(), lift_alerts: false };
    run.clients.runs.resume_run(request).await.unwrap().into_inner().run.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn paused_terminal_freezes_the_rest_of_the_run() {
    let daemon = Daemon::start_with(setup("")).await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = counting(&daemon, &workspace).await;
    run.start(process::command(&["sh", "-c", THIEF])).await;
    let call = run.waits(calls::exec(&["sh", "-c", "while [ ! -e stop ]; do sleep 0.05; done; echo done"]));
    let stolen = workspace.join("stolen");
    // Beside a terminal for which nothing is paused the thief has its way.
    let mut open = Seat::with(&run, TerminalStart { paused: false, ..paused(&[]) }).await.unwrap();
    open.sees("drawn").await;
    open.signal(v1::terminal_signal::Kind::Kill).await;
    open.closed().await;
    // It may have found that shell once more, in its last moment.
    let looked = || std::fs::read(workspace.join("looked")).map_or(0, |bytes| bytes.len());
    let before = looked();
    harness::until("the thief stands still", async || looked() > before + 1).await;
    std::fs::remove_file(&stolen).unwrap();

    let mut seat = Seat::with(&run, paused(&[])).await.unwrap();
    let session = seat.session.clone();
    seat.types("echo $((6*7))\r").await;
    seat.sees("42").await;
    stands_still(&workspace).await;
    let shown = run.show().await;
    assert_eq!((shown.state(), holds(&shown)), (State::Paused, vec![(Kind::Terminal, session.as_str())]));
    assert_eq!(shown.holds[0].principal, "uid:0");
    for call in [calls::read("a.txt"), calls::exec(&["true"]), calls::write("b.txt", "x")] {
        let refused = run.call(call).await.unwrap_err();
        assert_eq!(reason(&refused), "RUN_NOT_READY");
        assert!(refused.message().contains(&session), "{}", refused.message());
    }
    let refused = run.try_start(process::command(&["true"])).await.unwrap_err();
    assert_eq!(reason(&refused), "RUN_NOT_READY", "{refused}");
    for start in [TerminalStart::default(), paused(&[])] {
        let refused = Seat::with(&run, start).await.err().expect("another terminal was opened");
        assert_eq!(reason(&refused), "RUN_NOT_READY", "{refused}");
    }
    // What is started in it is its own, and goes with it.
    seat.types("(printf own > own; sleep 1000) & sleep 0.1; cat own; exit 3\r").await;
    seat.sees("own").await;
    assert_eq!(seat.closed().await, (Reason::Exited, Some(3), None));
    goes_on(&mut run, &workspace).await;
    tokio::time::sleep(QUIET).await;
    assert!(!stolen.exists(), "a process of the run had a look at the shell");
    assert!(!String::from_utf8_lossy(&seat.screen).contains("drawn"));
    assert!(!harness::processes(&run.run.container_id).contains(&"sleep 1000".to_owned()));
    // A call that was under way goes on.
    std::fs::write(workspace.join("stop"), "").unwrap();
    assert_eq!(call.await.unwrap().unwrap().status(), v1::call_response::Status::Succeeded);

    let since = |record: &Value| record["details"]["paused_since_ms"].as_u64().expect("since when");
    let (opened, closed) =
        (recorded(&run, &session, "session_opened").await, recorded(&run, &session, "session_closed").await);
    assert_eq!(since(&opened), since(&closed));
    let until = closed["outcome"]["facts"]["paused_until_ms"].as_u64().expect("until when");
    assert!(until >= since(&closed) + u64::try_from(QUIET.as_millis()).unwrap(), "{closed}");
    let id = run.id().to_owned();
    let states = run.clients.events(&id, "run_state").await;
    let states: Vec<_> = states.iter().map(|event| record(event)["details"].clone()).collect();
    let names: Vec<_> = states.iter().map(|details| details["state"].as_str().unwrap()).collect();
    assert_eq!(names, ["READY", "PAUSED", "READY"]);
    assert_eq!(states[1]["holds"][0]["cause_id"], session.as_str());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_continues_however_its_paused_terminal_ends() {
    let daemon = Daemon::start_with(setup("sessions: { idle_timeout: 5s }\n")).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = counting(&daemon, &workspace).await;
    // The operator hangs up.
    let seat = Seat::with(&run, paused(&["sleep", "1000"])).await.unwrap();
    runs(&run, "sleep 1000").await;
    let session = seat.session.clone();
    drop(seat);
    let closed = recorded(&run, &session, "session_closed").await;
    assert_eq!(closed["outcome"]["reason"], "DISCONNECTED");
    assert!(closed["outcome"]["facts"]["paused_until_ms"].is_u64(), "{closed}");
    goes_on(&mut run, &workspace).await;
    // Nothing is typed.
    let mut seat = Seat::with(&run, paused(&["sleep", "1001"])).await.unwrap();
    stands_still(&workspace).await;
    assert_eq!(seat.closed().await.0, Reason::TimedOut);
    goes_on(&mut run, &workspace).await;
    // Its command does not even start.
    let mut seat = Seat::with(&run, paused(&["no-such-program"])).await.unwrap();
    assert_eq!(reason(&seat.over().await.unwrap_err()), "NOT_FOUND");
    goes_on(&mut run, &workspace).await;
    // Its worker is killed under it.
    let mut seat = Seat::with(&run, paused(&["sleep", "1002"])).await.unwrap();
    runs(&run, "sleep 1002").await;
    let worker = harness::pid_of(&run.run.container_id, "/.cofferdam/guest serve").unwrap();
    let worker = rustix::process::Pid::from_raw(i32::try_from(worker).unwrap()).unwrap();
    rustix::process::kill_process(worker, rustix::process::Signal::KILL).unwrap();
    assert_eq!(seat.closed().await.0, Reason::Lost);
    goes_on(&mut run, &workspace).await;
    // The run is stopped, and nothing of it is left.
    let mut seat = Seat::with(&run, paused(&["sleep", "1003"])).await.unwrap();
    runs(&run, "sleep 1003").await;
    let before = counted(&workspace);
    let (stopped, closed) = tokio::join!(run.stop(), seat.closed());
    assert_eq!((stopped.state(), closed.0), (State::Stopped, Reason::RunEnded));
    assert_eq!(counted(&workspace), before, "a process of the run went on before it ended");
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_s_pause_freezes_it_too_and_outlasts_it() {
    let daemon = Daemon::start_with(setup("")).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = counting(&daemon, &workspace).await;
    pause(&mut run).await;
    let refused = Seat::with(&run, paused(&[])).await.err().expect("a terminal in a paused run");
    assert_eq!(reason(&refused), "RUN_NOT_READY", "{refused}");
    assert_eq!(resume(&mut run).await.state(), State::Ready, "the refused terminal holds nothing");

    let writes = "while :; do printf x >> /workspace/written; sleep 0.01; done";
    let seat = Seat::with(&run, paused(&["sh", "-c", writes])).await.unwrap();
    let written = || std::fs::read(workspace.join("written")).map_or(0, |bytes| bytes.len());
    let writes_on = async |before: usize| {
        let on = async {
            // A command has no other way to tell.
            while written() <= before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), on)
            .await
            .expect("the terminal's command does not go on");
    };
    writes_on(0).await;
    pause(&mut run).await;
    let before = written();
    tokio::time::sleep(QUIET).await;
    assert_eq!(written(), before, "an operator's pause leaves the terminal running");
    let resumed = resume(&mut run).await;
    assert_eq!((resumed.state(), resumed.holds.len()), (State::Paused, 1), "the terminal still holds it");
    writes_on(before).await;
    stands_still(&workspace).await;
    // A pause that outlasts the terminal, which ends while it is frozen.
    pause(&mut run).await;
    let session = seat.session.clone();
    seat.signal(v1::terminal_signal::Kind::Kill).await;
    drop(seat);
    recorded(&run, &session, "session_closed").await;
    stands_still(&workspace).await;
    let shown = run.show().await;
    assert_eq!((shown.state(), holds(&shown)), (State::Paused, vec![(Kind::Operator, "")]));
    resume(&mut run).await;
    goes_on(&mut run, &workspace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_dies_or_stops_leaves_nothing_frozen_for_it() {
    let mut daemon = Daemon::start_with(setup("runs: { on_stop: leave }\n")).await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = counting(&daemon, &workspace).await;
    for dies in [true, false] {
        let seat = Seat::with(&run, paused(&["sleep", "1000"])).await.unwrap();
        runs(&run, "sleep 1000").await;
        let session = seat.session.clone();
        if dies {
            daemon.kill().await;
            stands_still(&workspace).await;
        } else {
            daemon.stop().await;
        }
        daemon.launch().await;
        run = RunHandle { clients: daemon.connect().await, ..run };
        goes_on(&mut run, &workspace).await;
        assert!(!harness::processes(&run.run.container_id).contains(&"sleep 1000".to_owned()));
        let closed = recorded(&run, &session, "session_closed").await;
        assert!(closed["details"]["paused_since_ms"].is_u64(), "{closed}");
        if dies {
            assert_eq!(closed["outcome"]["status"], "interrupted", "{closed}");
            let message = closed["outcome"]["message"].as_str().unwrap();
            assert!(message.contains("the session's pause of the run ended"), "{message}");
        } else {
            assert_eq!(closed["outcome"]["reason"], "RUN_ENDED", "{closed}");
        }
        let id = run.id().to_owned();
        let states = run.clients.events(&id, "run_state").await;
        let last = record(states.last().unwrap())["details"].clone();
        assert_eq!((&last["state"], last.get("holds")), (&Value::from("READY"), None), "{last}");
    }
    // The next one may be opened.
    let mut seat = Seat::with(&run, paused(&[])).await.unwrap();
    seat.types("echo $((6*7)); exit 0\r").await;
    seat.sees("42").await;
    assert_eq!(seat.closed().await, (Reason::Exited, Some(0), None));
    goes_on(&mut run, &workspace).await;
}
