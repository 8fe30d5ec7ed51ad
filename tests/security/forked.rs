//! A run with processes and sessions is forked and restored.

use harness::{Daemon, RunHandle, forks, processes};

use crate::stays::IDLE;

/// Forks the run, whose process or session `id` runs. The fork has no process of it, and is ended.
pub(crate) async fn forked(daemon: &Daemon, run: &RunHandle, id: &str) {
    let mut clients = daemon.connect().await;
    let made = forks::fork(&mut clients, forks::of_run(run.id(), 1)).await.unwrap();
    let checkpoint = made.checkpoint.unwrap();
    assert!(checkpoint.processes.iter().any(|process| process == id), "{checkpoint:?}");
    let [fork] = &made.forks[..] else { panic!("not one fork: {:?}", made.failures) };
    let mut fork = RunHandle { run: Box::new(fork.run.clone().unwrap()), clients: clients.clone() };
    assert_eq!(processes(&fork.run.container_id), IDLE, "a fork has a process of its origin");
    assert!(fork.listed().await.is_empty() && fork.sessions().await.is_empty());
    fork.stop().await;
    fork.delete().await;
    forks::delete(&mut clients, &checkpoint.checkpoint_id).await.unwrap();
}

/// Gives the run the files that it has, which ends its processes and sessions.
pub(crate) async fn restored(daemon: &Daemon, run: &RunHandle) {
    let mut clients = daemon.connect().await;
    let made = forks::checkpoint(&mut clients, run.id()).await.unwrap().checkpoint_id;
    let restored = forks::restore(&mut clients, run.id(), &made).await.unwrap();
    assert!(restored.ended_processes > 0, "there was nothing to end");
    for id in [made, restored.before.unwrap().checkpoint_id] {
        forks::delete(&mut clients, &id).await.unwrap();
    }
}
