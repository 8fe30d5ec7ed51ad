//! Checkpoints, forks, restores and accepts on a disk that is full, or becomes full meanwhile.

use harness::v1::run::{Changes, State};
use harness::{Daemon, RunHandle, calls, forks, reason, requests, until, v1};
use tonic::Status;
use tonic_health::pb::health_check_response::ServingStatus;

use crate::full_disk::{Small, on_a_small_disk, wait_for};

const MIB: u64 = 1 << 20;
/// Size of the run's files, MiB: one file each.
const FILES: u64 = 24;
/// Space that is left on the disk before each request, MiB: less than a record, less than the files, and more.
const LEFT: [u64; 6] = [0, 2, 12, 26, 40, 64];

/// Requests on the full disk.
#[derive(Debug, Clone, Copy)]
enum Step {
    Checkpoint,
    ForkOfRun,
    ForkOfCheckpoint,
    Restore,
}

/// Gives all files of the run one content.
async fn fill(run: &mut RunHandle, word: &str) {
    let script = format!("for i in $(seq {FILES}); do yes {word} | head -c {MIB} >f$i || exit 1; done");
    assert_eq!(run.exec(&["sh", "-c", &script]).await.exit_code, Some(0));
}

/// Returns the digest that all files of the run have.
async fn content(run: &mut RunHandle) -> String {
    let seen = run.exec(&["sh", "-c", "md5sum f* | cut -d ' ' -f 1 | sort | uniq -c"]).await.stdout;
    let words: Vec<_> = seen.split_whitespace().collect();
    let [count, digest] = words[..] else { panic!("a mix of states: {seen}") };
    assert_eq!(count, FILES.to_string());
    digest.to_owned()
}

/// Waits until the daemon has seen that the disk has space, and runs commands again.
async fn works(run: &mut RunHandle) {
    until("no command is run", async || {
        let answer = run.call(calls::exec(&["true"])).await;
        answer.is_ok_and(|answer| answer.status() == v1::call_response::Status::Succeeded)
    })
    .await;
}

async fn runs(clients: &mut harness::Clients) -> Vec<v1::Run> {
    clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs
}

/// Makes the request. Its forks are ended at once where that is possible.
async fn attempt(daemon: &Daemon, step: Step, run: &str, kept: &str) -> Result<(), Status> {
    let mut clients = daemon.connect().await;
    let made = match step {
        Step::Checkpoint => return forks::checkpoint(&mut clients, run).await.map(drop),
        Step::Restore => return forks::restore(&mut clients, run, kept).await.map(drop),
        Step::ForkOfRun => forks::fork(&mut clients, forks::of_run(run, 2)).await?,
        Step::ForkOfCheckpoint => forks::fork(&mut clients, forks::of_checkpoint(kept, 2)).await?,
    };
    let failed: u32 = made.failures.iter().map(|failure| failure.count).sum();
    assert_eq!(made.forks.len() + failed as usize, 2, "{:?}", made.failures);
    for failure in made.failures {
        assert!(!failure.message.is_empty() && !failure.message.contains("/var/tmp"), "{failure:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_leaves_no_half_of_a_checkpoint_a_fork_or_a_restore() {
    let (daemon, small) = on_a_small_disk(320).await;
    let mut clients = daemon.connect().await;
    let mut origin = daemon.run_on(requests::managed("harness")).await;
    let id = origin.id().to_owned();
    fill(&mut origin, "kept").await;
    let of_kept = content(&mut origin).await;
    let kept = forks::checkpoint(&mut clients, &id).await.unwrap().checkpoint_id;
    fill(&mut origin, "now").await;
    let of_now = content(&mut origin).await;
    let (mut refusals, mut successes) = (0, 0);
    for left in LEFT {
        for step in [Step::Checkpoint, Step::ForkOfRun, Step::ForkOfCheckpoint, Step::Restore] {
            small.leave(left * MIB);
            let answer = attempt(&daemon, step, &id, &kept).await;
            small.free();
            wait_for(&daemon, ServingStatus::Serving).await;
            match &answer {
                Ok(()) => successes += 1,
                Err(refused) => {
                    refusals += 1;
                    assert!(!reason(refused).is_empty(), "{step:?}, {left} MiB: {refused}");
                    assert!(!refused.message().contains("/var/tmp"), "a host path: {refused}");
                }
            }
            whole(&daemon, &kept).await;

            // The run has one state, and can be used. What was restored is changed again.
            until("the run stays frozen", async || origin.show().await.holds.is_empty()).await;
            assert_eq!(origin.show().await.state(), State::Ready, "{step:?}, {left} MiB: {}", daemon.log());
            works(&mut origin).await;
            let found = content(&mut origin).await;
            let is_restore = matches!(step, Step::Restore);
            assert!(found == of_now || (is_restore && found == of_kept), "{step:?}, {left} MiB");
            assert!(!is_restore || answer.is_err() || found == of_kept, "{left} MiB: it was not restored");
            if is_restore {
                fill(&mut origin, "now").await;
            }
        }
    }
    assert!(refusals > 0 && successes > 0, "{refusals} refusals and {successes} successes");
    let log = clients.verify().await;
    assert!(log.intact, "{}", log.damage);
    Box::pin(accepted(&daemon, &small, origin, &kept)).await;
}

/// Ends all forks, and asserts that nothing but the checkpoint `kept` is left of any request, after others were deleted.
async fn whole(daemon: &Daemon, kept: &str) {
    let mut clients = daemon.connect().await;
    for run in runs(&mut clients).await {
        if run.forked_from.is_none() {
            continue;
        }
        let mut fork = RunHandle { run, clients: clients.clone() };
        match fork.show().await.state() {
            State::Ready => drop(fork.stop().await),
            State::Failed => assert!(!fork.show().await.failure.is_empty()),
            _ => {}
        }
        fork.delete().await;
    }
    for checkpoint in forks::list(&mut clients).await {
        if checkpoint.checkpoint_id != kept {
            forks::delete(&mut clients, &checkpoint.checkpoint_id).await.unwrap();
        }
    }
    until("a part of a checkpoint is left", async || forks::trees(daemon) == [kept]).await;
    until("a container is left", async || daemon.containers().len() == 1).await;
    let overlays = daemon.state_dir().join("overlays");
    let count = || std::fs::read_dir(&overlays).map_or(0, Iterator::count);
    until("a layer is left", async || count() == 0).await;
}

/// Accepts the changes of a fork into the workspace of its origin, which has ended, on a full disk.
async fn accepted(daemon: &Daemon, small: &Small, mut origin: RunHandle, kept: &str) {
    forks::restore(&mut daemon.connect().await, origin.id(), kept).await.unwrap();
    let workspace = daemon.state_dir().join("workspaces").join(origin.id());
    let request = forks::of_run(origin.id(), 1);
    let mut fork = forks::ready(daemon, request).await.remove(0);
    fill(&mut fork, "accepted").await;
    fork.stop().await;
    origin.stop().await;
    let read = |file: u64| std::fs::read(workspace.join(format!("f{file}"))).unwrap();
    let old = read(1);
    let new = b"accepted\n".repeat(old.len() / 9 + 1);
    small.leave(4 * MIB);
    let refused = fork.accept(false).await;
    for file in 1..=FILES {
        let found = read(file);
        assert!(
            found == old || new.starts_with(&found) && found.len() == old.len(),
            "half of a file: f{file}"
        );
    }
    small.free();
    wait_for(daemon, ServingStatus::Serving).await;
    if let Err(refused) = refused {
        assert!(!reason(&refused).is_empty(), "{refused}");
        assert_eq!(fork.show().await.changes(), Changes::Pending);
        fork.accept(false).await.unwrap();
    }
    assert!((1..=FILES).all(|file| new.starts_with(&read(file))), "an accepted change is missing");
}
