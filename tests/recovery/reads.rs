//! Tests workers that are lost during read-only calls, which the daemon repeats with the next worker, and the record of a lost
//! host worker.

use harness::v1::call_response::Status;
use harness::v1::operation::Kind as Operation;
use harness::v1::result::Kind as Answer;
use harness::{Daemon, RunHandle, calls, pid_of, record, v1};
use rustix::process::{Pid, Signal, kill_process};
use tonic::Streaming;

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), signal).unwrap();
}

async fn follow(run: &mut RunHandle, kind: &str) -> Streaming<v1::StreamEventsResponse> {
    let filter = v1::EventFilter { kinds: vec![kind.to_owned()], ..Default::default() };
    let request = v1::StreamEventsRequest { filter: Some(filter), follow: true, ..Default::default() };
    run.clients.audit.stream_events(request).await.unwrap().into_inner()
}

async fn next(events: &mut Streaming<v1::StreamEventsResponse>) -> v1::AuditEvent {
    events.message().await.unwrap().expect("a followed stream does not end").event.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_calls_are_repeated_once_after_a_lost_worker() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let mut intents = follow(&mut run, "call_intent").await;
    let agent = pid_of(&run.run.container_id, "/.cofferdam/guest serve").expect("an agent serves");

    // One that is stopped answers nothing: the calls are under way for certain when it is killed.
    signal(agent, Signal::STOP);
    let glob = v1::GlobRequest { pattern: "*.txt".to_owned(), ..Default::default() };
    let looks = [calls::read("a.txt"), calls::list("."), Operation::Glob(glob), calls::grep(".", "one")];
    let looking = looks.map(|operation| run.waits(operation));
    let command = run.waits(calls::exec(&["true"]));
    for _ in 0..=looking.len() {
        next(&mut intents).await;
    }
    signal(agent, Signal::KILL);
    for look in looking {
        let call = look.await.unwrap().unwrap();
        assert_eq!(call.status(), Status::Succeeded, "{:?}", call.error);
        match call.kind().cloned().unwrap() {
            Answer::Read(read) => assert_eq!(read.content, "one\n"),
            Answer::List(list) => assert_eq!(list.entries.len(), 1),
            Answer::Glob(glob) => assert_eq!(glob.paths, ["@project/a.txt"]),
            Answer::Grep(grep) => assert_eq!(grep.matches.len(), 1),
            other => panic!("{other:?}"),
        }
    }
    // Whether the command had an effect nobody knows: that is for its caller to find out.
    let call = command.await.unwrap().unwrap();
    let details = call.error.unwrap().details;
    assert_eq!((call.status, details["retryable"].as_str()), (Status::Failed.into(), "true"));
    assert_ne!(pid_of(&run.run.container_id, "/.cofferdam/guest serve"), Some(agent));
    // One intent and one receipt each, however often it was tried.
    let id = run.id().to_owned();
    for kind in ["call_intent", "call_receipt"] {
        assert_eq!(run.clients.events(&id, kind).await.len(), 5, "{kind}");
    }
}

/// The host worker of the daemon's one run.
fn host_worker(daemon: &Daemon) -> u32 {
    let output = std::process::Command::new("pgrep")
        .args(["--parent", &daemon.pid().to_string(), "--full", "^coffer-host-worker"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().next().expect("no host worker serves").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_host_worker_is_on_record_and_the_next_call_has_another() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let mut events = follow(&mut run, "worker_event").await;
    run.ok(calls::write("a.txt", "one\n")).await;
    let before = host_worker(&daemon);
    signal(before, Signal::KILL);
    let lost = next(&mut events).await;
    assert_eq!(
        (lost.run_id.as_str(), &record(&lost)["details"]["worker"]),
        (run.id(), &"coffer-host-worker".into())
    );
    run.ok(calls::write("a.txt", "two\n")).await;
    assert_ne!(host_worker(&daemon), before);
    run.stop().await;
    let id = run.id().to_owned();
    assert_eq!(run.clients.events(&id, "worker_event").await.len(), 1, "an orderly end is no loss");
}
