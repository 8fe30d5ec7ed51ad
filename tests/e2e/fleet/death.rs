//! A node of three is killed and comes back, and another is drained: what that means for runs and calls.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::v1::CallRequest;
use harness::v1::run::State;
use harness::{Clients, broke, calls, reason, requests, until, v1};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Code;

use super::{Fleet, PATIENCE, SOON, VICTIM, listed};

async fn echo(clients: &mut Clients, run_id: &str) -> Result<(), tonic::Status> {
    let request = Some(calls::exec(&["echo", "hi"]).into());
    let call = CallRequest { run_id: run_id.to_owned(), request, ..Default::default() };
    let answer = clients.tools.call(call).await?.into_inner();
    assert_eq!(answer.status(), v1::call_response::Status::Succeeded, "{answer:?}");
    Ok(())
}

/// Calls in 60 runs on three nodes, of which one is killed and comes back, and another is drained.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_costs_others_nothing_and_its_runs_are_adopted() {
    const RUNS: usize = 20;
    let mut fleet = Fleet::start().await;
    let clients = fleet.clients();
    let mut ids = vec![Vec::new(); 3];
    let mut making = JoinSet::new();
    for (index, clients) in clients.iter().enumerate() {
        let mut clients = clients.clone();
        making.spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..RUNS {
                let made = clients.runs.create_run(requests::managed("p")).await.unwrap().into_inner();
                ids.push(made.run.unwrap().run_id);
            }
            (index, ids)
        });
    }
    for (index, made) in making.join_all().await {
        ids[index] = made;
    }

    // A call a second in each run. The tasks of the node that dies end with their first failure.
    let stop = Arc::new(AtomicBool::new(false));
    let mut calling = JoinSet::new();
    for (index, ids) in ids.iter().enumerate() {
        for (number, id) in ids.iter().enumerate() {
            let (mut clients, id, stop) = (clients[index].clone(), id.clone(), stop.clone());
            calling.spawn(async move {
                tokio::time::sleep(Duration::from_millis(50 * number as u64)).await;
                let (mut calls, mut slowest) = (0, Duration::ZERO);
                // A node that is slow is called often enough, and the one that dies until it fails.
                while index == VICTIM || calls < 3 || !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let called = echo(&mut clients, &id).await;
                    slowest = slowest.max(began.elapsed());
                    if let Err(failed) = called {
                        return (index, calls, slowest, Some(failed));
                    }
                    calls += 1;
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
                (index, calls, slowest, None)
            });
        }
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    fleet.nodes[VICTIM].kill().await;
    // Calls that begin while it is dead fail at once, with a type.
    for id in &ids[VICTIM] {
        let began = Instant::now();
        let failed = echo(&mut clients[VICTIM].clone(), id).await.unwrap_err();
        assert!(broke(&failed), "{failed}");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    stop.store(true, Ordering::Relaxed);
    let called =
        timeout(PATIENCE, calling.join_all()).await.expect("a call on a dead node hangs or was answered");
    for (index, calls, slowest, failed) in called {
        assert!(slowest < SOON, "a call on node {} took {slowest:?}", index + 1);
        if index != VICTIM {
            assert!(failed.is_none() && calls >= 3, "node {}: {calls} calls, {failed:?}", index + 1);
        }
    }

    // It comes back, and its runs are adopted and reachable.
    fleet.nodes[VICTIM].launch().await;
    let mut back = clients[VICTIM].clone();
    until("the node does not answer", async || {
        back.runs.list_runs(v1::ListRunsRequest::default()).await.is_ok()
    })
    .await;
    let adopted = listed(&mut back).await;
    let ready = adopted.iter().filter(|run| run.state() == State::Ready).map(|run| run.run_id.as_str());
    assert_eq!(ready.collect::<BTreeSet<_>>(), ids[VICTIM].iter().map(String::as_str).collect());
    for id in &ids[VICTIM] {
        echo(&mut back, id).await.unwrap();
    }

    // A drained node gets no new run, and loses none.
    let drained = fleet.coffer(&["--node", "3", "node", "drain", "--reason", "a new kernel"]).await;
    assert_eq!(drained.code, 0, "{}", drained.err);
    assert!(fleet.all(&["node", "show"]).await.contains("DRAINING"));
    let mut on_drained = clients[2].clone();
    let refused = on_drained.runs.create_run(requests::managed("p")).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "NODE_DRAINED"));
    for index in [0, 1] {
        clients[index].clone().runs.create_run(requests::managed("p")).await.unwrap();
    }
    let kept = listed(&mut on_drained).await;
    assert_eq!(kept.iter().filter(|run| run.state() == State::Ready).count(), RUNS);
    assert_eq!(kept.len(), RUNS);
    for id in &ids[2] {
        echo(&mut on_drained, id).await.unwrap();
    }
}
