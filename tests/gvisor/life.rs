//! Tests the life of a run across daemons, and features that it cannot have.

use harness::{RunHandle, calls, reason, v1};
use wire::v1::terminal_service_client::TerminalServiceClient;

use crate::inside::{Inside, exec};
use crate::{IDLE, enter, processes};

#[tokio::test(flavor = "multi_thread")]
async fn v5_a_run_outlives_a_killed_daemon_and_its_commands_do_not() {
    let (mut daemon, mut inside) = enter().await;
    let mut working = inside.again(&daemon).await;
    let script = "(setsid sleep 1000 &) ; echo > begun; sleep 1000";
    let lost = tokio::spawn(async move { working.run.call(calls::shell(script)).await });
    while !inside.workspace.join("begun").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    daemon.kill().await;
    assert!(lost.await.unwrap().is_err());
    daemon.launch().await;
    inside.run = RunHandle { clients: daemon.connect().await, ..inside.run };
    assert_eq!(inside.run.show().await.state(), v1::run::State::Ready, "{}", daemon.log());
    // The previous relay goes when it hears that its daemon has gone.
    let idle = async { while processes(&mut inside).await != IDLE {} };
    tokio::time::timeout(std::time::Duration::from_secs(20), idle)
        .await
        .expect("only the next guest is there");
    inside.run.stop().await;
    assert!(daemon.containers().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn v5_a_kernel_that_ends_while_no_daemon_watches_is_put_down_to_the_program() {
    let (mut daemon, mut inside) = enter().await;
    daemon.kill().await;
    // As a crash of it is seen.
    let killed = harness::docker().args(["kill", &inside.run.run.container_id]).output().unwrap();
    assert!(killed.status.success(), "{killed:?}");
    daemon.launch().await;
    inside.run = RunHandle { clients: daemon.connect().await, ..inside.run };
    let failed = inside.run.show().await;
    assert_eq!((failed.state(), failed.failure_reason.as_str()), (v1::run::State::Failed, "RUN_LOST"));
    assert_eq!(failed.fault(), v1::Fault::Program, "{failed:?}");
    let restart = |fact: &v1::Evidence| fact.what == "daemon.event" && fact.value == "restart";
    assert!(failed.evidence.iter().any(restart), "{failed:?}");
}

#[tokio::test]
async fn v5_unsupported_features_are_refused() {
    let (daemon, mut inside) = enter().await;
    let run_id = inside.run.id().to_owned();
    let paused = inside.run.clients.runs.pause_run(v1::PauseRunRequest { run_id }).await.unwrap_err();
    assert_eq!(reason(&paused), "PRECONDITION_FAILED", "{paused}");
    // A terminal that is to be alone is not opened beside what goes on.
    let start = v1::TerminalStart { run_id: inside.run.id().to_owned(), paused: true, ..Default::default() };
    let start = v1::open_terminal_request::Event::Start(start);
    let requests = tokio_stream::iter([v1::OpenTerminalRequest { event: Some(start) }]);
    let mut terminals = TerminalServiceClient::new(inside.run.clients.channel.clone());
    let refused = terminals.open_terminal(requests).await.unwrap_err();
    assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{refused}");
    let Inside { run, .. } = &mut inside;
    let process = harness::process::command(&["sleep", "9"]);
    run.try_start(process).await.unwrap_err();
    run.try_open(v1::OpenSessionRequest::default()).await.unwrap_err();
    assert_eq!(inside.exec(exec(&["environment"])).await.exit_code, Some(0));
    drop(daemon);
}
