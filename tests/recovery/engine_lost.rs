//! The container engine goes away while the daemon lives.

use std::path::PathBuf;

use harness::v1::run::State;
use harness::v1::{ListRunsRequest, Run};
use harness::{Daemon, EngineProxy, Setup, calls, reason, requests, v1};
use tonic_types::StatusExt as _;

#[tokio::test(flavor = "multi_thread")]
async fn without_its_engine_the_daemon_refuses_and_cleans_up_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let socket: PathBuf = directory.path().join("engine.sock");
    let engine = EngineProxy::new(&socket);
    let config = format!("docker: {{ endpoint: \"unix://{}\" }}\n", socket.display());
    let mut daemon = Daemon::start_with(Setup { config, ..Default::default() }).await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.ok(calls::write("a.txt", "x")).await;

    drop(engine);
    let failed = run.ended().await;
    assert_eq!(failed.state(), State::Failed);
    assert!(failed.failure.contains("engine"), "{}", failed.failure);
    assert_eq!((failed.failure_reason.as_str(), failed.fault()), ("RUN_LOST", v1::Fault::Infrastructure));
    let shown = |what: &str| failed.evidence.iter().any(|fact| fact.what == what);
    assert!(shown("engine.state"), "{:?}", failed.evidence);
    assert_eq!(reason(&run.call(calls::read("a.txt")).await.unwrap_err()), "RUN_LOST");
    let refused = daemon.run_with(requests::managed("open")).await.map(|_| ()).unwrap_err();
    assert_eq!(reason(&refused), "ENGINE_UNAVAILABLE");
    let facts = refused.get_details_error_info().unwrap().metadata;
    assert_eq!((facts["fault"].as_str(), facts["retry_safe"].as_str()), ("INFRASTRUCTURE", "true"));
    assert_eq!(facts["evidence.engine.state"], "unreachable");
    assert!(
        !refused.message().contains("engine.sock"),
        "a host's path reached the client: {}",
        refused.message()
    );
    // It was no fault of the request: the run stays, and the list says why it failed.
    let listed = run.clients.runs.list_runs(ListRunsRequest::default()).await.unwrap().into_inner().runs;
    assert_eq!(listed.iter().map(Run::state).collect::<Vec<_>>(), [State::Failed; 2]);
    assert!(listed[0].failure.contains("engine"), "{}", listed[0].failure);
    assert!(run.clients.verify().await.intact);

    let _engine = EngineProxy::new(&socket);
    let mut next = daemon.run_on(requests::managed("open")).await;
    assert_eq!(next.exec(&["id", "-u"]).await.stdout, "1001\n");
    next.stop().await;
    daemon.stop().await;
    daemon.launch().await;
    assert_eq!((daemon.containers(), daemon.mounts()), (vec![], vec![]));
}
