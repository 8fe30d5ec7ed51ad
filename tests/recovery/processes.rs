//! Processes that the next daemon finds, and those that it does not.

use harness::process::{command, script};
use harness::v1::exec_result::EndedBy;
use harness::v1::process::State;
use harness::v1::{Process, ProcessRequest};
use harness::{Daemon, RunHandle, Setup, outlives, pid_of, processes, reason, record, requests};

use crate::adopted::IDLE;

#[tokio::test(flavor = "multi_thread")]
async fn process_that_cannot_be_reattached_is_interrupted() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let id = run.start(script("setsid sleep 1000 & echo up; sleep 1000")).await.process_id;
    run.until(&id, "up").await;
    let other = run.start(command(&["sleep", "1001"])).await.process_id;
    daemon.kill().await;
    // Its keeper is killed while nobody looks; the shell goes with it, and what left its session does not.
    let container = run.run.container_id.clone();
    let keepers: Vec<_> = processes(&container).into_iter().filter(|line| line.ends_with(" keep")).collect();
    assert_eq!(keepers.len(), 2, "{keepers:?}");
    let shell = pid_of(&container, "sleep 1000").unwrap();
    let parent = |pid: u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned();
        line.parse::<u32>().unwrap()
    };
    let is_keeper =
        |pid: u32| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"keep\0"));
    let mut keeper = shell;
    while !is_keeper(keeper) {
        keeper = parent(keeper);
    }
    let keeper = rustix::process::Pid::from_raw(i32::try_from(keeper).unwrap()).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::KILL).unwrap();
    daemon.launch().await;

    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let lost = run.waited(&id).await;
    assert_eq!((lost.state(), lost.ended_by()), (State::Interrupted, EndedBy::Interrupted), "{lost:?}");
    assert_eq!(lost.kill.unwrap().left, 0);
    assert!(run.logs(&id).await.text().contains("up"), "what it had written is there");
    let run_id = run.id().to_owned();
    let told = run.clients.events(&run_id, "process_ended").await;
    assert_eq!(told.len(), 1);
    assert_eq!(record(&told[0])["outcome"]["status"], "interrupted");
    // The other one goes on.
    let listed = run.listed().await;
    assert_eq!(listed.iter().find(|process| process.process_id == other).unwrap().state(), State::Running);
    run.send(&other, harness::v1::signal_process_request::Signal::Kill).await.unwrap();
    run.waited(&other).await;
    assert_eq!(processes(&container), IDLE);
}

#[tokio::test(flavor = "multi_thread")]
async fn process_with_unreadable_record_is_interrupted() {
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let id = run.start(script("setsid sleep 1000 & echo up; sleep 1000")).await.process_id;
    run.until(&id, "up").await;
    daemon.kill().await;
    let known = daemon.state_dir().join("processes").join(run.id()).join(&id).join("living.sealed");
    std::fs::write(known, "not what the daemon wrote").unwrap();
    daemon.launch().await;

    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let check = |lost: &Process| {
        assert_eq!((lost.state(), lost.ended_by()), (State::Interrupted, EndedBy::Interrupted), "{lost:?}");
        assert_eq!(lost.fault(), harness::v1::Fault::Infrastructure, "{lost:?}");
        assert!(lost.failure.contains("cannot read") && lost.ended_at.is_some(), "{lost:?}");
        let kill = lost.kill.as_ref().unwrap();
        assert!(kill.ended >= 2 && kill.left == 0, "{kill:?}");
    };
    check(&run.waited(&id).await);
    assert!(run.logs(&id).await.text().contains("up"), "what it had written is there");
    assert_eq!(processes(&run.run.container_id), IDLE);
    let run_id = run.id().to_owned();
    let told = run.clients.events(&run_id, "process_ended").await;
    assert_eq!(told.len(), 1);
    let told = record(&told[0]);
    assert_eq!(
        (&told["call_id"], &told["outcome"]["status"]),
        (&id.as_str().into(), &"interrupted".into()),
        "{told}"
    );
    // The next daemon knows it.
    let mut run = outlives(&mut daemon, run).await;
    check(&run.listed().await[0]);
    let told = run.clients.events(&run_id, "process_ended").await;
    assert_eq!(told.len(), 1, "one end");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_stop_that_leaves_runs_leaves_their_processes() {
    let config = "runs: { on_stop: leave }\n".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let id = run.start(ProcessRequest { stdin: true, ..command(&["cat"]) }).await.process_id;
    run.feed(&id, 0, b"one\n", false).await.unwrap();
    run.until(&id, "one\n").await;
    let handle = run.run.clone();
    drop(run);
    daemon.stop().await;
    daemon.launch().await;
    let mut run = RunHandle { run: handle, clients: daemon.connect().await };
    assert_eq!(run.feed(&id, 4, b"two\n", true).await.unwrap().offset, 8);
    let read = run.all_of(&id).await;
    assert_eq!((read.text().as_str(), read.process.unwrap().exit_code), ("one\ntwo\n", Some(0)));
    // One that has ended is still there after a crash.
    let mut run = outlives(&mut daemon, run).await;
    assert_eq!(run.all_of(&id).await.text(), "one\ntwo\n");
}

/// The daemon dies while processes end: before it heard, while it ends what they left, before and after it kept the end.
#[tokio::test(flavor = "multi_thread")]
async fn no_exit_code_is_lost_with_a_daemon_that_dies_around_the_end() {
    const TOGETHER: i32 = 6;
    let mut daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    for round in 0..effort::cases(20, 200) {
        let mut ids = Vec::new();
        for number in 0..TOGETHER {
            // They end one after the other, so that each kill meets several places of an end.
            let program = format!("read line; echo $line; sleep 0.00{number}; exit {}", 10 + number);
            let id = run.start(ProcessRequest { stdin: true, ..script(&program) }).await.process_id;
            ids.push(id);
        }
        for id in &ids {
            run.feed(id, 0, b"end\n", false).await.unwrap();
        }
        // The moment is what is tried: any is right.
        tokio::time::sleep(std::time::Duration::from_millis(u64::from(round % 20) * 7)).await;
        run = outlives(&mut daemon, run).await;
        for (number, id) in (0..).zip(&ids) {
            let ended = run.waited(id).await;
            assert_eq!(
                (ended.state(), ended.exit_code, ended.ended_by()),
                (State::Ended, Some(10 + number), EndedBy::Unspecified),
                "round {round}: {ended:?}"
            );
            assert_eq!(run.all_of(id).await.text(), "end\n");
            // A client that heard nothing of it sends its bytes again.
            let again = run.feed(id, 0, b"end\n", false).await.unwrap();
            assert_eq!((again.offset, again.open), (4, false));
            assert_eq!(reason(&run.feed(id, 4, b"more", false).await.unwrap_err()), "PRECONDITION_FAILED");
        }
        assert_eq!(processes(&run.run.container_id), IDLE);
    }
    let run_id = run.id().to_owned();
    let told = run.clients.events(&run_id, "process_ended").await;
    let codes: Vec<_> =
        told.iter().map(|told| record(told)["outcome"]["exit_code"].as_i64().unwrap_or(-1)).collect();
    for code in 10..10 + i64::from(TOGETHER) {
        assert!(codes.iter().filter(|told| **told == code).count() >= 20, "each end is on record: {codes:?}");
    }
}
