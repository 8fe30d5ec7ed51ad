//! The worker in the container is killed: that costs its calls, is noticed and recorded, and the next call works.

use std::time::Duration;

use harness::v1::call_response::Status;
use harness::v1::run::State;
use harness::{Daemon, calls, record, v1};

/// The guest's process as the host sees it: the one that serves, of the container's processes.
fn guest(container: &str) -> u32 {
    harness::pid_of(container, "/.cofferdam/guest serve").expect("a guest serves")
}

fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    // It may be gone by now.
    let killed = rustix::process::kill_process(pid, signal);
    assert!(matches!(killed, Ok(()) | Err(rustix::io::Errno::SRCH)), "{killed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_guest_costs_its_calls_and_is_started_again() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("open", &workspace).await;
    let mut events = {
        let filter = v1::EventFilter { kinds: vec!["worker_event".to_owned()], ..Default::default() };
        let request = v1::StreamEventsRequest { filter: Some(filter), follow: true, ..Default::default() };
        run.clients.audit.stream_events(request).await.unwrap().into_inner()
    };
    let working = run.works(&workspace).await;

    let before = guest(&run.run.container_id);
    kill(before, rustix::process::Signal::KILL);
    let call = working.await.unwrap().unwrap();
    assert_eq!(call.status(), Status::Failed);
    let failure = call.error.unwrap();
    assert_eq!(failure.details.get("retryable").map(String::as_str), Some("true"), "{failure:?}");
    let cause = "ended by signal 9, probably by a command of this run";
    let told = format!(
        "The worker was {cause}; it is restarting. The call may have taken effect; check before retrying."
    );
    assert_eq!(failure.message, told);
    let lost = events.message().await.unwrap().unwrap().event.unwrap();
    assert_eq!(lost.run_id, run.id());
    assert_eq!(record(&lost)["details"]["worker"], "coffer-guest");
    assert_eq!(record(&lost)["details"]["why"], cause);

    // The new one may not be there yet when the loss is told: calls wait for it.
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
    assert_ne!(guest(&run.run.container_id), before);
    assert!(!workspace.join("ended").exists());
    let left = std::process::Command::new("docker")
        .args(["top", &run.run.container_id, "-eo", "args"])
        .output()
        .unwrap();
    let left = String::from_utf8(left.stdout).unwrap();
    assert!(!left.contains("sleep 60"), "the lost call's command runs on: {left}");
    assert_eq!(run.show().await.state(), State::Ready);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_is_lost_too_often_ends_its_run() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let container = run.run.container_id.clone();
    let mut ended = run.clone();
    let ended = tokio::spawn(async move { ended.ended().await });
    let mut before = 0;
    while !ended.is_finished() {
        let output = std::process::Command::new("docker")
            .args(["top", &container, "-eo", "pid,args"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let serving = text.lines().find(|line| line.ends_with(" serve"));
        let pid = serving.and_then(|line| line.split_whitespace().next()?.parse().ok());
        if let Some(pid) = pid.filter(|pid| *pid != before) {
            kill(pid, rustix::process::Signal::KILL);
            before = pid;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let failed = ended.await.unwrap();
    assert_eq!(failed.state(), State::Failed);
    assert!(failed.failure.contains("worker"), "{}", failed.failure);
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
    assert!(run.clients.events(run.run.run_id.as_str(), "worker_event").await.len() >= 4);
}

/// Four workers are killed, which ends a run, but two of them under a read that the daemon repeats.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_read_counts_one_loss_and_reuses_no_cgroup() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    // A pattern that no table of states holds is searched for in it for longer than a read may last.
    std::fs::write(workspace.join("large"), ("ab".repeat(200) + "\n").repeat(400_000)).unwrap();
    let search = || {
        let pattern = "(?:[ab]{1,40}){30}z?[^ab]c".to_owned();
        let request =
            v1::GrepRequest { path: "@project/large".to_owned(), pattern, regex: true, ..Default::default() };
        v1::operation::Kind::Grep(request)
    };
    let mut run = daemon.run("open", &workspace).await;
    let id = run.id().to_owned();
    for _ in 0..2 {
        let reading = run.waits(search());
        harness::until("the read is not under way", async || {
            let intents = run.clients.events(&id, "call_intent").await.len();
            intents > run.clients.events(&id, "call_receipt").await.len()
        })
        .await;
        for _ in 0..2 {
            // Each has begun to read, and has processes that wait for commands, when it answers this.
            for _ in 0..2 {
                assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
            }
            let lost = guest(&run.run.container_id);
            kill(lost, rustix::process::Signal::KILL);
            harness::until("no other guest is started", async || {
                let serving = harness::pid_of(&run.run.container_id, "/.cofferdam/guest serve");
                serving.is_some_and(|serving| serving != lost)
            })
            .await;
        }
        let read = reading.await.unwrap().unwrap();
        let error = read.error.as_ref().expect("it fails");
        assert_eq!(error.details.get("retryable").map(String::as_str), Some("true"), "{error:?}");
    }
    assert_eq!(run.exec(&["cat", "a.txt"]).await.stdout, "one\n");
    assert_eq!(run.show().await.state(), State::Ready);
    assert!(!daemon.log().contains("could not be put into its cgroup"), "{}", daemon.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_of_a_lost_command_is_recorded() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    // Nobody's child; it has used 200 ms itself when it says so.
    let burn = "n=0; while [ $n -lt 20 ]; do i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; \
        read stat < /proc/$$/stat; set -- $stat; n=$((${14} + ${15})); done; echo > burnt; sleep 1000";
    let working = run.waits(calls::shell(&format!("(sh -c '{burn}' &); sleep 1000")));
    let burns = async {
        // A command has no other way to tell.
        while !workspace.join("burnt").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), burns).await.expect("it does not burn");
    kill(guest(&run.run.container_id), rustix::process::Signal::KILL);
    let call = working.await.unwrap().unwrap();
    assert_eq!(call.status(), Status::Failed);
    let events = run.clients.of_call(&call.call_id).await;
    let receipt = record(events.last().unwrap());
    // The worker said nothing of it.
    assert!(receipt["usage"]["cpu_us"].as_u64().is_some_and(|used| used >= 200_000), "{receipt}");
    assert!(receipt["usage"]["peak_memory_bytes"].as_u64().is_some_and(|peak| peak > 100_000), "{receipt}");
    let used = call.usage.unwrap();
    assert_eq!(receipt["usage"]["cpu_us"], used.cpu_time_us);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_a_lost_guest_did_not_take_is_removed_by_the_next() {
    let daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[]);
    let mut run = daemon.run("open", &workspace).await;
    let names = [".cofferdam-upload-0192a7c0-0000-7000-8000-000000000001", ".cofferdam-upload-mine", "mine"];
    run.ran(calls::shell(&format!("cd /state && touch {}", names.join(" ")))).await;
    assert_eq!(run.fails(calls::shell("kill -9 $PPID")).await.reason, "CANCELLED");
    let left = run.ran(calls::shell("ls -A /state")).await.stdout;
    assert_eq!(left, ".cofferdam-upload-mine\nlogs\nmine\n");
}
