//! X1: commands against the agent, which has their uid.

use std::collections::BTreeSet;

use harness::Daemon;
use harness::v1::call_request::Operation;
use libc::{EACCES, ENOENT, EPERM};

use crate::inside::{Inside, PROBE, exec, outcomes};

#[tokio::test]
async fn x1_the_agent_can_be_neither_read_nor_forged() {
    let daemon = Daemon::start().await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let found = outcomes(&inside.probe(&["peers"]).await);
    let attacked: BTreeSet<&str> = found.iter().map(|(name, _)| name.split(' ').next().unwrap()).collect();
    let count = attacked.len();
    assert!(
        (2..=4).contains(&count),
        "the first process, the agent, and the two copies of it that may wait: {attacked:?}"
    );
    let succeeded: Vec<_> = found
        .iter()
        // A name in a directory that cannot be searched does not exist either, as far as the kernel says.
        .filter(|(_, errno)| ![EACCES, EPERM, ENOENT].contains(errno))
        .collect();
    assert!(succeeded.is_empty(), "{succeeded:?}");
    for attempt in ["fd/1", "mem", "ptrace attach", "process_vm_readv", "pidfd_getfd 1", "prlimit", "environ"]
    {
        let tried = found.iter().filter(|(name, _)| name.split_once(' ').unwrap().1 == attempt).count();
        assert_eq!(tried, count, "{attempt} was tried on all");
    }
}

/// Signals of the same user cannot be forbidden. They cost only the run's own calls.
async fn the_run_survives(signal: &str) {
    let daemon = Daemon::start().await;
    let mut inside = Inside::enter(&daemon, "w").await;
    let mut bystander = Inside::enter(&daemon, "bystander").await;
    // What the command has left by then is not to outlive the agent either.
    let script = format!("{PROBE} tree setsid 6 leave; exec {PROBE} signal-agent {signal}");
    let response = inside.run.call(harness::calls::exec(&["sh", "-c", &script])).await.unwrap();
    let error = response.error.expect("the agent was lost under the call");
    assert_eq!(error.reason, "CANCELLED", "{}", error.message);

    // The loss is answered before the new worker is there: a call may still come too early.
    let survived = async {
        while inside
            .run
            .call(Operation::Exec(exec(&["environment"])))
            .await
            .is_ok_and(|call| call.error.is_some())
        {}
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), survived).await.unwrap();
    assert_eq!(inside.probe(&["environment"]).await.len(), 4);
    inside.assert_idle();
    let id = inside.run.id().to_owned();
    let events = inside.run.clients.events(&id, "worker_event").await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(bystander.probe(&["environment"]).await.len(), 4, "another run notices nothing");
}

#[tokio::test]
async fn x1_killing_the_agent_costs_only_the_run_s_own_calls() {
    the_run_survives("9").await;
}

#[tokio::test]
async fn x1_stopping_the_agent_is_noticed() {
    the_run_survives("19").await;
}
