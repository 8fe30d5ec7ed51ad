//! Checkpoints of runs, restores and forks, as clients see them.

use std::path::PathBuf;

use tonic::Status;
use wire::v1::fork_run_request::Origin;
use wire::v1::{self, ForkRunRequest, ForkRunResponse, RestoreRunResponse, RunCheckpoint};

use crate::client::Clients;
use crate::daemon::Daemon;
use crate::run::RunHandle;

/// Files of [`fill`].
pub const FILES: usize = 400;

/// Gives 400 files of the run one word.
pub async fn fill(run: &mut RunHandle, word: &str) {
    let script = format!("for i in $(seq {FILES}); do echo {word} >f$i; done");
    assert_eq!(run.exec(&["sh", "-c", &script]).await.exit_code, Some(0));
}

/// Returns the word that all 400 files of the run have. A mix of two states fails the test.
pub async fn word(run: &mut RunHandle) -> String {
    let seen = run.exec(&["sh", "-c", "cat f* | sort | uniq -c"]).await.stdout;
    let words: Vec<_> = seen.split_whitespace().collect();
    let [count, word] = words[..] else { panic!("a mix of states: {seen}") };
    assert_eq!(count, FILES.to_string());
    word.to_owned()
}

/// Returns a request for forks of a live run.
pub fn of_run(run: &str, count: u32) -> ForkRunRequest {
    ForkRunRequest { origin: Some(Origin::RunId(run.to_owned())), count, ..Default::default() }
}

/// Returns a request for forks of a checkpoint.
pub fn of_checkpoint(checkpoint: &str, count: u32) -> ForkRunRequest {
    ForkRunRequest { origin: Some(Origin::CheckpointId(checkpoint.to_owned())), count, ..Default::default() }
}

/// Makes a checkpoint of a run; a refusal is an error.
pub async fn checkpoint(clients: &mut Clients, run: &str) -> Result<RunCheckpoint, Status> {
    let request = v1::CheckpointRunRequest { run_id: run.to_owned(), label: String::new() };
    Ok(clients.checkpoints.checkpoint_run(request).await?.into_inner().checkpoint.unwrap())
}

/// Gives a run the files of a checkpoint; a refusal is an error.
pub async fn restore(
    clients: &mut Clients,
    run: &str,
    checkpoint: &str,
) -> Result<RestoreRunResponse, Status> {
    let request = v1::RestoreRunRequest { run_id: run.to_owned(), checkpoint_id: checkpoint.to_owned() };
    Ok(clients.checkpoints.restore_run(request).await?.into_inner())
}

/// Makes forks as asked; a refusal is an error, and forks that could not be made are in the answer.
pub async fn fork(clients: &mut Clients, request: ForkRunRequest) -> Result<ForkRunResponse, Status> {
    Ok(clients.checkpoints.fork_run(request).await?.into_inner())
}

/// Returns the checkpoints that the caller may use, of all runs, at most 500.
pub async fn list(clients: &mut Clients) -> Vec<RunCheckpoint> {
    let request = v1::ListCheckpointsRequest { page_size: 500, ..Default::default() };
    clients.checkpoints.list_checkpoints(request).await.unwrap().into_inner().checkpoints
}

/// Deletes a checkpoint; a refusal is an error.
pub async fn delete(clients: &mut Clients, checkpoint: &str) -> Result<(), Status> {
    let request = v1::DeleteCheckpointRequest { checkpoint_id: checkpoint.to_owned() };
    clients.checkpoints.delete_checkpoint(request).await.map(drop)
}

/// Returns the names of the directories that a daemon has for checkpoints, complete or not.
pub fn trees(daemon: &Daemon) -> Vec<String> {
    let entries = std::fs::read_dir(daemon.state_dir().join("checkpoints")).into_iter().flatten();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Returns the directory of the copied files of a checkpoint's part, such as `workspace`.
pub fn files(daemon: &Daemon, checkpoint: &RunCheckpoint, part: &str) -> PathBuf {
    daemon.state_dir().join("checkpoints").join(&checkpoint.checkpoint_id).join(part).join("files")
}

/// Makes forks, all of which must be READY. Each has a connection of its own.
pub async fn ready(daemon: &Daemon, request: ForkRunRequest) -> Vec<RunHandle> {
    let wanted = request.count as usize;
    let made = fork(&mut daemon.connect().await, request).await;
    let made = made.unwrap_or_else(|status| panic!("{status}\n{}", daemon.log()));
    assert_eq!((made.forks.len(), made.failures.len()), (wanted, 0), "{:?}", made.failures);
    let mut forks = Vec::new();
    for fork in made.forks {
        let run = fork.run.unwrap();
        assert_eq!(run.state(), v1::run::State::Ready);
        forks.push(RunHandle { run: Box::new(run), clients: daemon.connect().await });
    }
    forks
}
