//! Memory of the daemon after many runs.

use std::time::Duration;

use harness::v1::run_service_client::RunServiceClient;
use harness::{Daemon, memory, requests, v1};
use tokio::task::JoinSet;

/// KiB more than before, when a crowd has gone.
const MORE: u64 = 12 << 10;
/// Time within which the daemon has given the rest back.
const WITHIN: Duration = Duration::from_secs(60);

/// Forty runs, a hundred with `COFFERDAM_LONG`.
#[tokio::test(flavor = "multi_thread")]
async fn memory_is_returned_after_a_crowd_of_runs() {
    let daemon = Daemon::start().await;
    let mut run = daemon.run_on(requests::managed("open")).await;
    run.exec(&["true"]).await;
    let private = || memory(daemon.pid(), "RssAnon");
    let before = private();
    let runs = RunServiceClient::new(run.clients.channel.clone());
    let mut made = JoinSet::new();
    for _ in 0..effort::cases(40, 100) {
        let mut runs = runs.clone();
        made.spawn(async move { runs.create_run(requests::managed("open")).await.unwrap().into_inner() });
    }
    let made = made.join_all().await;
    let alive = private();
    let mut stopped = JoinSet::new();
    for made in made {
        let mut runs = runs.clone();
        let request = v1::StopRunRequest { run_id: made.run.unwrap().run_id };
        stopped.spawn(async move { runs.stop_run(request).await.unwrap() });
    }
    stopped.join_all().await;
    let after = private();
    let settled = async {
        while private() > before + MORE {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let settled = tokio::time::timeout(WITHIN, settled).await;
    eprintln!("KiB: {before} with one, {alive} with all, {after} when they ended, {} at last", private());
    assert!(settled.is_ok(), "{before} KiB before, {} after", private());
}
