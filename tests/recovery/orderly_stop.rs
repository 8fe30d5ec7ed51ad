//! Tests SIGTERM: the daemon refuses calls, ends living runs, records it and exits.

use harness::v1::{self, run::State};
use harness::{Daemon, calls, reason, record};

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_leaves_nothing_running_and_a_closed_record() {
    let mut daemon = Daemon::start().await;
    let workspace = daemon.workspace("w", &[("a.txt", "one\n")]);
    let mut run = daemon.run("review", &workspace).await;
    let other = daemon.run("open", &workspace).await;
    let waiting = run.waits(calls::write("b.txt", "x"));
    run.clients.pending_approval(&run.run.run_id.clone()).await;
    let working = other.works(&workspace).await;

    daemon.stop().await;
    assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]));
    assert!(!daemon.socket().exists());
    for call in [waiting, working] {
        // Whoever waited was told, or lost the connection; nobody was told that it succeeded.
        match call.await.unwrap() {
            Ok(call) => assert!(!call.error.unwrap().message.contains("restarting")),
            Err(refused) => assert!(!refused.message().contains("restarting"), "{refused}"),
        }
    }
    let report = audit::verify(&daemon.state_dir().join("audit"), &mut |_| {}).unwrap();
    assert!(report.is_intact());

    daemon.launch().await;
    let mut clients = daemon.connect().await;
    let events = clients.events("", "").await;
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    let stopped = kinds.iter().position(|kind| *kind == "daemon_stopped").expect("the stop is on record");
    let behind: Vec<_> = kinds[stopped + 1..].iter().filter(|kind| **kind != "checkpoint").collect();
    assert_eq!(kinds[stopped + 1], "checkpoint", "the stop is signed");
    assert_eq!(*behind[0], "daemon_started", "nothing else is recorded after the stop");
    for kind in ["call_intent", "call_receipt"] {
        assert_eq!(kinds.iter().filter(|known| **known == kind).count(), 2, "{kind}");
    }
    for event in events.iter().filter(|event| event.kind == "call_receipt") {
        let outcome = &record(event)["outcome"];
        assert_ne!(outcome["status"], "succeeded");
        assert_ne!(outcome["status"], "interrupted", "the daemon closed it itself: {outcome}");
        let said = outcome["message"].as_str().unwrap_or_default();
        assert!(!said.contains("restarting"), "the run has ended: {said}");
    }
    for id in [run.id(), other.id()] {
        let request = v1::GetRunRequest { run_id: id.to_owned() };
        let run = clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap();
        assert_eq!((run.state(), run.failure.as_str()), (State::Stopped, ""));
    }
    let request = v1::CallRequest {
        run_id: run.run.run_id,
        request: Some(calls::read("a.txt").into()),
        ..Default::default()
    };
    assert_eq!(reason(&clients.tools.call(request).await.unwrap_err()), "RUN_NOT_READY");
}
