//! Forks, restores and deletions at the same moment: each of them is whole or refused, and no state is mixed with another one.

use std::collections::BTreeSet;
use std::time::Duration;

use harness::forks::{FILES, fill, word};
use harness::v1::run::State;
use harness::{Daemon, RunHandle, forks, reason, requests, until, v1};

/// The second request comes after so many milliseconds at most.
const SPREAD: u64 = 400;

/// Waits for a part of the time. The moment is what is tried: any is right.
async fn later(round: u32, rounds: u32) {
    tokio::time::sleep(Duration::from_millis(SPREAD * u64::from(round) / u64::from(rounds))).await;
}

/// Ends forks after a look at their files.
async fn ended(daemon: &Daemon, answer: v1::ForkRunResponse, expected: &str) {
    for fork in answer.forks {
        let mut fork = RunHandle { run: fork.run.unwrap(), clients: daemon.connect().await };
        assert_eq!(word(&mut fork).await, expected);
        fork.stop().await;
        fork.delete().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_beside_the_end_of_its_run_is_whole_or_refused() {
    let daemon = Daemon::start().await;
    let rounds = effort::cases(6, 60);
    let (mut made, mut refused) = (0, 0);
    for round in 0..rounds {
        let mut origin = daemon.run_on(requests::managed("harness")).await;
        let now = format!("round-{round}");
        fill(&mut origin, &now).await;
        let (mut clients, request) = (daemon.connect().await, forks::of_run(origin.id(), 2));
        let forking = tokio::spawn(async move { forks::fork(&mut clients, request).await });
        later(round, rounds).await;
        assert_eq!(origin.stop().await.state(), State::Stopped);
        match forking.await.unwrap() {
            Ok(answer) => {
                assert_eq!((answer.forks.len(), answer.failures.len()), (2, 0), "{:?}", answer.failures);
                made += 1;
                ended(&daemon, answer, &now).await;
            }
            Err(status) => {
                assert_eq!(reason(&status), "RUN_NOT_READY", "{status}");
                refused += 1;
            }
        }
        let mut clients = daemon.connect().await;
        for checkpoint in forks::list(&mut clients).await {
            forks::delete(&mut clients, &checkpoint.checkpoint_id).await.unwrap();
        }
        origin.delete().await;
        until("a part of a checkpoint is left", async || forks::trees(&daemon).is_empty()).await;
    }
    println!("{made} requests were answered and {refused} refused");
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
    assert_eq!(daemon.leftovers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_is_deleted_or_forked_and_not_both() {
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut origin = daemon.run_on(requests::managed("harness")).await;
    fill(&mut origin, "kept").await;
    let rounds = effort::cases(6, 60);
    for round in 0..rounds {
        let id = forks::checkpoint(&mut clients, origin.id()).await.unwrap().checkpoint_id;
        let (mut other, request) = (daemon.connect().await, forks::of_checkpoint(&id, 2));
        let forking = tokio::spawn(async move { forks::fork(&mut other, request).await });
        later(round, rounds).await;
        let deleted = forks::delete(&mut clients, &id).await;
        match (deleted, forking.await.unwrap()) {
            (Ok(()), Err(refused)) => assert_eq!(reason(&refused), "NOT_FOUND", "{refused}"),
            (Err(refused), Ok(answer)) => {
                assert_eq!(reason(&refused), "PRECONDITION_FAILED", "{refused}");
                assert_eq!(answer.forks.len(), 2, "{:?}", answer.failures);
                ended(&daemon, answer, "kept").await;
                forks::delete(&mut clients, &id).await.unwrap();
            }
            (deleted, forked) => panic!("{deleted:?} and {forked:?}"),
        }
        assert!(forks::trees(&daemon).is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restores_at_once_leave_the_state_of_one_of_them() {
    const AT_ONCE: usize = 4;
    let daemon = Daemon::start().await;
    let mut clients = daemon.connect().await;
    let mut origin = daemon.run_on(requests::managed("harness")).await;
    let id = origin.id().to_owned();
    let mut states = Vec::new();
    for number in 0..AT_ONCE {
        let state = format!("state-{number}");
        fill(&mut origin, &state).await;
        states.push((forks::checkpoint(&mut clients, &id).await.unwrap().checkpoint_id, state));
    }
    for _ in 0..effort::cases(3, 30) {
        let mut tasks = Vec::new();
        for (checkpoint, state) in states.clone() {
            let (mut clients, id) = (daemon.connect().await, id.clone());
            tasks.push(tokio::spawn(
                async move { (forks::restore(&mut clients, &id, &checkpoint).await, state) },
            ));
        }
        let (mut restored, mut befores) = (Vec::new(), Vec::new());
        for task in tasks {
            match task.await.unwrap() {
                (Ok(answer), state) => {
                    befores.push(answer.before.unwrap());
                    restored.push(state);
                }
                (Err(refused), _) => {
                    assert!(!reason(&refused).is_empty() && reason(&refused) != "INTERNAL", "{refused}");
                }
            }
        }
        let found = word(&mut origin).await;
        assert!(restored.contains(&found), "{found}, and {restored:?} were restored");
        let shown = origin.show().await;
        assert_eq!((shown.state(), shown.holds.len()), (State::Ready, 0));
        for before in befores {
            // Each state before was whole.
            let files = forks::files(&daemon, &before, "workspace");
            let words = (1..=FILES).map(|file| std::fs::read(files.join(format!("f{file}"))).unwrap());
            let words: BTreeSet<Vec<u8>> = words.collect();
            assert_eq!(words.len(), 1, "a mix of states");
            forks::delete(&mut clients, &before.checkpoint_id).await.unwrap();
        }
    }
    assert_eq!(forks::trees(&daemon).len(), AT_ONCE);
}
