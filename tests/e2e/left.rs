//! Processes that a command leaves running, in a profile that keeps them: they stay until the run ends, are listed, and
//! never delay a call.

use std::time::Duration;

use harness::v1::call_request::Request;
use harness::v1::exec_result::EndedBy;
use harness::v1::process::State;
use harness::v1::signal_process_request::Signal;
use harness::v1::{self, CreateRunRequest, Process};
use harness::{Daemon, RunHandle, Setup, calls, dev_image, processes, record, requests, until};

/// Processes of a container in which no command runs.
const IDLE: [&str; 2] = ["/.cofferdam/guest hold", "/.cofferdam/guest serve"];

/// Runs a script that leaves something, and returns its entry.
async fn leaves(run: &mut RunHandle, script: &str, processes: u32) -> Process {
    let call = run.call(calls::shell(script)).await.unwrap();
    let Some(v1::result::Kind::Shell(result)) = call.kind() else { panic!("{script}: {call:?}") };
    let kill = result.kill.as_ref().unwrap();
    assert_eq!((kill.running, kill.ended, kill.left), (processes, 0, 0), "{script}: {result:?}");
    assert!(!result.timed_out && result.ended_by() == EndedBy::Unspecified, "{script}: {result:?}");
    let listed = run.listed().await;
    let entry = listed.into_iter().find(|process| process.process_id == call.call_id).expect(script);
    assert_eq!((entry.state(), entry.left_behind), (State::Running, processes), "{entry:?}");
    assert_eq!(entry.request.as_ref().unwrap().script, script);
    entry
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_a_command_left_serves_the_next_calls() {
    let daemon = Daemon::start().await;
    let request = CreateRunRequest { image: dev_image(), ..requests::managed("harness") };
    let mut run = daemon.run_on(request).await;
    run.ok(calls::write("a.txt", "served")).await;
    // As models write it, by the dialect that has a `bash`: the first with its pipes, which it writes each request into.
    let servers = [
        "python3 -m http.server --bind 127.0.0.1 8080 &",
        "nohup python3 -m http.server --bind 127.0.0.1 8081 > log 2>&1 &",
        "setsid python3 -m http.server --bind 127.0.0.1 8082 >/dev/null 2>&1 < /dev/null & disown; echo up",
        "(cd /workspace && (python3 -m http.server --bind 127.0.0.1 8083 &) )",
        "exec python3 -c 'import os, sys; os.fork() or os.setsid() and os.fork() or os.execvp(\"python3\", [\"python3\", \"-m\", \"http.server\", \"--bind\", \"127.0.0.1\", \"8084\"])'",
    ];
    for (number, server) in servers.into_iter().enumerate() {
        let arguments = serde_json::json!({ "command": server });
        let call = run.call(Request::Dialect(bash(&arguments))).await.unwrap();
        assert_eq!(call.status(), v1::call_response::Status::Succeeded, "{server}: {call:?}");
        let port = 8080 + number;
        let url = format!("http://127.0.0.1:{port}/a.txt");
        let curl = format!("curl -sS --fail --retry 30 --retry-connrefused --retry-delay 1 {url}");
        for _ in 0..3 {
            assert_eq!(run.ran(calls::shell(&curl)).await.stdout, "served", "{server}");
        }
    }
    let listed = run.listed().await;
    assert_eq!(listed.len(), servers.len(), "{listed:?}");
    assert!(listed.iter().all(|process| process.left_behind == 1), "{listed:?}");

    // Each ends by a signal like any other process.
    run.send(&listed[0].process_id, Signal::Term).await.unwrap();
    run.send(&listed[1].process_id, Signal::Kill).await.unwrap();
    let (asked, killed) = (run.waited(&listed[0].process_id).await, run.waited(&listed[1].process_id).await);
    assert_eq!((asked.state(), asked.ended_by()), (State::Ended, EndedBy::Unspecified), "{asked:?}");
    assert_eq!((killed.state(), killed.ended_by()), (State::Ended, EndedBy::Killed), "{killed:?}");
    assert_eq!(killed.kill.unwrap().left, 0);

    // And all end with the run.
    let container = run.run.container_id.clone();
    assert!(processes(&container).iter().filter(|line| line.contains("http.server")).count() == 3);
    run.stop().await;
    let id = run.id().to_owned();
    let ended = run.clients.events_when(&id, "process_ended", |events| events.len() == 5).await;
    for event in ended.iter().map(record) {
        assert_eq!(event["outcome"]["facts"]["kill"]["left"], 0, "{event}");
    }
    let left = run.clients.events(&id, "processes_left").await;
    let left: Vec<_> = left.iter().map(record).collect();
    assert_eq!(left.len(), 5);
    assert!(left.iter().all(|event| event["details"]["processes"] == 1), "{left:?}");
    assert_eq!(left[0]["call_id"], left[0]["details"]["process_id"]);
}

fn bash(arguments: &serde_json::Value) -> v1::DialectCall {
    v1::DialectCall {
        dialect: "code".to_owned(),
        name: "bash".to_owned(),
        arguments_json: arguments.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn background_processes_hold_no_call_and_end_with_an_ended_command() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let container = run.run.container_id.clone();
    for (script, count) in [
        ("sleep 1000 &", 1),
        ("sleep 1000 & sleep 1001 & (setsid sleep 1002 &) ; echo up", 3),
        ("sleep 1000 < /dev/null > /dev/null 2>&1 &", 1),
        ("trap '' TERM HUP; sleep 1000 & exec true", 1),
        ("sleep 1000 & kill -9 $$", 1),
    ] {
        let entry = leaves(&mut run, script, count).await;
        run.send(&entry.process_id, Signal::Kill).await.unwrap();
        assert_eq!(run.waited(&entry.process_id).await.kill.unwrap().left, 0, "{script}");
        idle(&container).await;
    }
    // The command's own output is complete. Later output is dropped, and kills no process that writes it.
    let chatty = "echo first; (while :; do echo more; echo >&2 more; echo x >> ticks; sleep 0.05; done) & echo last >&2";
    let call = run.ran(calls::shell(chatty)).await;
    assert!(call.stdout.starts_with("first\n") && call.stderr.contains("last\n"), "{call:?}");
    ticks(&mut run).await;
    let flood = "yes & echo $! > pid";
    run.ok(calls::shell(flood)).await;
    let busy = "a=$(cut -d' ' -f14 /proc/$(cat pid)/stat); while [ $(cut -d' ' -f14 /proc/$(cat pid)/stat) -le $((a + 3)) ]; do sleep 0.05; done";
    assert_eq!(
        run.ran(calls::shell(busy)).await.exit_code,
        Some(0),
        "it writes on and is not stopped by a full pipe"
    );
    for process in run.listed().await.iter().filter(|process| process.state() == State::Running) {
        run.send(&process.process_id, Signal::Kill).await.unwrap();
        run.waited(&process.process_id).await;
    }
    idle(&container).await;

    // A command that is ended leaves nothing.
    let timed = v1::ShellRequest {
        script: "(setsid sleep 1000 &) ; sleep 1001".to_owned(),
        timeout_ms: Some(3_000),
        ..Default::default()
    };
    let ended = run.ran(v1::operation::Kind::Shell(timed)).await;
    let kill = ended.kill.unwrap();
    assert!(ended.timed_out && kill.running == 0 && kill.left == 0 && kill.ended >= 2, "{kill:?}");
    idle(&container).await;

    // There are only so many: one more is ended, and the answer says so.
    for _ in 0..64 {
        run.ok(calls::exec(&["sh", "-c", "sleep 1000 > /dev/null 2>&1 &"])).await;
    }
    let kill = run.exec(&["sh", "-c", "sleep 1000 > /dev/null 2>&1 &"]).await.kill.unwrap();
    assert_eq!((kill.running, kill.ended, kill.left), (0, 1, 0), "{kill:?}");
    let listed = run.listed().await;
    assert_eq!(listed.iter().filter(|process| process.state() == State::Running).count(), 64);
    run.stop().await;
}

/// Waits until nothing of a command is there; the reader of its pipes ends moments after it.
async fn idle(container: &str) {
    until("something is left", async || processes(container) == IDLE).await;
}

/// Waits until what writes the file has gone on.
async fn ticks(run: &mut RunHandle) {
    let script = "a=$(wc -c < ticks); while [ $(wc -c < ticks) -le $((a + 6)) ]; do sleep 0.05; done";
    assert_eq!(run.ran(calls::shell(script)).await.exit_code, Some(0));
}

/// Kept processes are frozen with the run, and while an approved command runs.
#[tokio::test(flavor = "multi_thread")]
async fn background_processes_are_frozen_with_their_run() {
    let policy = "profiles:\n  kept:\n    workspace: read-write\n    operations: { exec: allow, shell: allow, read: allow }\n    \
        exec: { default: allow, background: keep, rules: [{ prefix: [sh, ask.sh], decision: ask, justification: Tried alone. }] }\n\
        roles: { director: { allow: \"*\" } }\n";
    let daemon =
        Daemon::start_with(Setup { policy: vec![("kept.yaml", policy.to_owned())], ..Default::default() })
            .await;
    let mut run = daemon.run_on(requests::managed("kept")).await;
    run.ok(calls::shell("echo 'a=$(wc -c < ticks); sleep 0.5; [ $(wc -c < ticks) = $a ]' > ask.sh")).await;
    let left = run.ran(calls::shell("while :; do echo x >> ticks; sleep 0.02; done &")).await;
    assert!(left.kill.unwrap().running > 0);
    ticks(&mut run).await;
    let (_, answer) = run.consented(calls::exec(&["sh", "ask.sh"])).await;
    let Some(v1::result::Kind::Exec(result)) = answer.kind() else { panic!("{answer:?}") };
    assert_eq!(result.exit_code, Some(0), "it did not run alone: {result:?}");
    ticks(&mut run).await;

    let id = run.id().to_owned();
    let file = daemon.state_dir().join("workspaces").join(&id).join("ticks");
    run.clients.runs.pause_run(v1::PauseRunRequest { run_id: id.clone() }).await.unwrap();
    let before = std::fs::metadata(&file).unwrap().len();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(std::fs::metadata(&file).unwrap().len(), before, "it goes on in a paused run");
    run.clients.runs.resume_run(v1::ResumeRunRequest { run_id: id, ..Default::default() }).await.unwrap();
    ticks(&mut run).await;
}
