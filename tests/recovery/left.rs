//! Processes that a command left running outlive the worker that started them, and the daemon.

use harness::v1::exec_result::EndedBy;
use harness::v1::process::State;
use harness::v1::signal_process_request::Signal;
use harness::{Daemon, RunHandle, Setup, calls, outlives, pid_of, processes, requests, until};

use crate::adopted::IDLE;

/// Script that writes into its pipes all the time. If they had no reader, its next line would kill it.
const CHATTY: &str = "(while :; do echo more; echo >&2 more; echo x >> ticks; sleep 0.02; done) & echo up";

/// Waits until it has gone on.
async fn ticks(run: &mut RunHandle) {
    let script = "a=$(wc -c < ticks); while [ $(wc -c < ticks) -le $((a + 9)) ]; do sleep 0.05; done";
    assert_eq!(run.ran(calls::shell(script)).await.exit_code, Some(0));
}

async fn running(run: &mut RunHandle) -> Vec<String> {
    let listed = run.listed().await.into_iter();
    let living = listed.filter(|process| process.state() == State::Running && process.left_behind > 0);
    living.map(|process| process.process_id).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn background_processes_survive_worker_and_daemon_restarts() {
    let config = "runs: { on_stop: leave }\n".to_owned();
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut run = daemon.run_on(requests::managed("harness")).await;
    let container = run.run.container_id.clone();
    assert!(run.ran(calls::shell(CHATTY)).await.kill.unwrap().running > 0);
    // A shell that ends may do so before what it has started is another program.
    let sleeps = "sleep 1234 > /dev/null 2>&1 & until grep -q sleep /proc/$!/cmdline; do :; done";
    run.ok(calls::shell(sleeps)).await;
    let before = running(&mut run).await;
    assert_eq!(before.len(), 2);
    let sleeps = pid_of(&container, "sleep 1234").unwrap();

    // Its worker is lost.
    let guest = pid_of(&container, "/.cofferdam/guest serve").unwrap();
    let guest = rustix::process::Pid::from_raw(i32::try_from(guest).unwrap()).unwrap();
    rustix::process::kill_process(guest, rustix::process::Signal::KILL).unwrap();
    // A call that was on its way before the loss is noticed is lost with it.
    let _ = run.call(calls::shell("true")).await;
    ticks(&mut run).await;
    // Its daemon is killed, and then stops in order and leaves its runs.
    let mut run = outlives(&mut daemon, run).await;
    ticks(&mut run).await;
    let handle = run.run.clone();
    drop(run);
    daemon.stop().await;
    daemon.launch().await;
    let mut run = RunHandle { run: handle, clients: daemon.connect().await };
    ticks(&mut run).await;
    assert_eq!(running(&mut run).await, before);
    assert_eq!(pid_of(&container, "sleep 1234"), Some(sleeps), "the same process");

    // One that ends while no daemon is there has ended for the next one.
    daemon.kill().await;
    let sleeps = rustix::process::Pid::from_raw(i32::try_from(sleeps).unwrap()).unwrap();
    rustix::process::kill_process(sleeps, rustix::process::Signal::KILL).unwrap();
    daemon.launch().await;
    let mut run = RunHandle { clients: daemon.connect().await, ..run };
    let ended = run.waited(&before[1]).await;
    assert_eq!((ended.state(), ended.ended_by()), (State::Ended, EndedBy::Unspecified), "{ended:?}");
    run.send(&before[0], Signal::Kill).await.unwrap();
    assert_eq!(run.waited(&before[0]).await.kill.unwrap().left, 0);
    until("something is left", async || processes(&container) == IDLE).await;
    let run_id = run.id().to_owned();
    assert_eq!(run.clients.events(&run_id, "process_ended").await.len(), 2, "one end each");
}
