//! `kill -9` of the daemon in the middle of checkpoints, forks, restores, accepts, and the removal of forks.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use harness::forks::{FILES, fill, word};
use harness::v1::run::{Changes, State};
use harness::{Daemon, RunHandle, forks, reason, requests, until, v1};
use tokio::task::JoinSet;

/// The kills are spread over so much time from the request on: longer than most of the requests take.
const SPREAD: Duration = Duration::from_millis(600);
/// Forks of a request.
const FORKS: u32 = 3;
/// Word of the checkpoint that is kept all the time.
const KEPT: &str = "kept";

/// Requests whose daemon is killed.
const STEPS: [Step; 5] = [Step::Checkpoint, Step::Fork, Step::Restore, Step::Accept, Step::Prune];

#[derive(Debug, Clone, Copy)]
enum Step {
    Checkpoint,
    Fork,
    Restore,
    Accept,
    Prune,
}

/// A run on a base, and a checkpoint of it.
struct Scene {
    daemon: Daemon,
    base: String,
    origin: RunHandle,
    kept: v1::RunCheckpoint,
}

async fn runs(clients: &mut harness::Clients) -> Vec<v1::Run> {
    clients.runs.list_runs(v1::ListRunsRequest::default()).await.unwrap().into_inner().runs
}

async fn end(run: &mut RunHandle) {
    run.stop().await;
    run.delete().await;
}

impl Scene {
    async fn set() -> Self {
        let daemon = Daemon::start().await;
        let source = daemon.workspace("w", &[("a.txt", "one\n")]);
        let base = daemon.base(&source).await;
        let mut origin = daemon.run_on(requests::base("harness", &base)).await;
        fill(&mut origin, KEPT).await;
        let kept = forks::checkpoint(&mut daemon.connect().await, origin.id()).await.unwrap();
        Self { daemon, base, origin, kept }
    }

    /// Kills the daemon after this time, and starts the next one.
    async fn dies(&mut self, after: Duration) {
        // The moment is what is tried: any is right.
        tokio::time::sleep(after).await;
        self.daemon.kill().await;
        self.daemon.launch().await;
        self.origin.clients = self.daemon.connect().await;
    }

    /// Returns the checkpoints beside the one that is kept.
    async fn others(&mut self) -> Vec<v1::RunCheckpoint> {
        let mut listed = forks::list(&mut self.origin.clients).await;
        listed.retain(|checkpoint| checkpoint.checkpoint_id != self.kept.checkpoint_id);
        listed
    }

    /// Asserts that the checkpoints are complete and have this word, and deletes them.
    async fn delete(&mut self, checkpoints: Vec<v1::RunCheckpoint>, word: &str) {
        for made in checkpoints {
            assert_eq!(made.parts[0].files, self.kept.parts[0].files, "{made:?}");
            let files = forks::files(&self.daemon, &made, "workspace");
            assert!((1..=FILES).all(|file| has(&files, file, word)), "not of one moment");
            forks::delete(&mut self.origin.clients, &made.checkpoint_id).await.unwrap();
        }
    }

    async fn checkpoint(&mut self, now: &str, after: Duration) {
        let (mut clients, id) = (self.daemon.connect().await, self.origin.id().to_owned());
        let making = tokio::spawn(async move { forks::checkpoint(&mut clients, &id).await });
        self.dies(after).await;
        let was_made = making.await.unwrap().is_ok();
        let others = self.others().await;
        // An answer may be lost with the daemon, and a checkpoint that was answered may not.
        assert!(others.len() <= 1 && others.len() >= usize::from(was_made), "{others:?}");
        self.delete(others, now).await;
        assert_eq!(word(&mut self.origin).await, now);
    }

    async fn fork(&mut self, now: &str, after: Duration) {
        let request =
            v1::ForkRunRequest { request_id: now.to_owned(), ..forks::of_run(self.origin.id(), FORKS) };
        let (mut clients, first) = (self.daemon.connect().await, request.clone());
        let making = tokio::spawn(async move { forks::fork(&mut clients, first).await });
        self.dies(after).await;
        let answered = making.await.unwrap();
        // The repeated request finds what was made, and makes the rest.
        let made = forks::ready(&self.daemon, request).await;
        let ids: BTreeSet<&str> = made.iter().map(RunHandle::id).collect();
        for fork in answered.into_iter().flat_map(|answer| answer.forks) {
            assert!(ids.contains(&*fork.run.unwrap().run_id), "a fork that was answered is forgotten");
        }
        let listed = runs(&mut self.origin.clients).await;
        let live = listed.iter().filter(|run| run.state() == State::Ready).map(|run| run.run_id.as_str());
        let live: BTreeSet<&str> = live.filter(|id| *id != self.origin.id()).collect();
        assert_eq!(live, ids, "forks that no answer names");
        for mut fork in made {
            assert_eq!(word(&mut fork).await, now);
            end(&mut fork).await;
        }
        let others = self.others().await;
        assert_eq!(others.len(), 1, "one checkpoint for both requests: {others:?}");
        self.delete(others, now).await;
        assert_eq!(word(&mut self.origin).await, now);
    }

    async fn restore(&mut self, now: &str, after: Duration) {
        let (mut clients, id) = (self.daemon.connect().await, self.origin.id().to_owned());
        let kept = self.kept.checkpoint_id.clone();
        let restoring = tokio::spawn(async move { forks::restore(&mut clients, &id, &kept).await });
        self.dies(after).await;
        let was_restored = restoring.await.unwrap().is_ok();
        let found = word(&mut self.origin).await;
        assert!(found == KEPT || (found == now && !was_restored), "{found}, not {now}");
        let others = self.others().await;
        assert!(others.len() <= 1 && others.len() >= usize::from(found == KEPT), "no way back: {others:?}");
        self.delete(others, now).await;
    }

    /// Accepts a fork of a run on an overlay.
    async fn accept(&mut self, now: &str, after: Duration) {
        let beneath = self.daemon.workspace(now, &[("f1", "old\n")]);
        let mut origin = self.daemon.run_on(requests::overlay("harness", &beneath)).await;
        fill(&mut origin, now).await;
        let request = forks::of_run(origin.id(), 1);
        let mut fork = forks::ready(&self.daemon, request).await.remove(0);
        fork.stop().await;
        let mut accepting = fork.clone();
        let accepting = tokio::spawn(async move { accepting.accept(false).await });
        self.dies(after).await;
        let was_accepted = accepting.await.unwrap().is_ok();
        let mut applied = (2..=FILES).filter(|file| beneath.join(format!("f{file}")).exists());
        assert!(applied.all(|file| has(&beneath, file, now)), "half of a file");
        assert!(has(&beneath, 1, "old") || has(&beneath, 1, now), "neither old nor new");
        fork.clients = self.daemon.connect().await;
        origin.clients = fork.clients.clone();
        let changes = fork.show().await.changes();
        let is_pending = changes == Changes::Pending;
        assert!(changes == Changes::Accepted || (is_pending && !was_accepted), "{changes:?}");
        if is_pending {
            fork.accept(false).await.unwrap();
        }
        assert!((1..=FILES).all(|file| has(&beneath, file, now)), "an accepted change is missing");
        fork.delete().await;
        end(&mut origin).await;
        for checkpoint in self.others().await {
            forks::delete(&mut self.origin.clients, &checkpoint.checkpoint_id).await.unwrap();
        }
    }

    /// Ends and deletes the forks of the checkpoint at once.
    async fn prune(&mut self, after: Duration) {
        let family = forks::ready(&self.daemon, forks::of_checkpoint(&self.kept.checkpoint_id, FORKS)).await;
        let mut ending = JoinSet::new();
        for mut fork in family.clone() {
            ending.spawn(async move {
                let (run_id, runs) = (fork.id().to_owned(), &mut fork.clients.runs);
                let stop = v1::StopRunRequest { run_id: run_id.clone() };
                let delete = v1::DeleteRunRequest { run_id, delete_workspace: true };
                runs.stop_run(stop).await.is_ok() && runs.delete_run(delete).await.is_ok()
            });
        }
        self.dies(after).await;
        let deleted = ending.join_all().await.into_iter().filter(|deleted| *deleted).count();
        self.settled().await;
        let mut gone = 0;
        for mut fork in family {
            fork.clients = self.daemon.connect().await;
            let request = v1::GetRunRequest { run_id: fork.id().to_owned() };
            match fork.clients.runs.get_run(request).await {
                Ok(found) if found.get_ref().run.as_ref().unwrap().state() == State::Ready => {
                    assert_eq!(word(&mut fork).await, KEPT);
                    end(&mut fork).await;
                }
                Ok(_) => fork.delete().await,
                Err(refused) => {
                    assert_eq!(reason(&refused), "NOT_FOUND", "{refused}");
                    gone += 1;
                }
            }
        }
        assert!(gone >= deleted, "a deleted fork is back");
    }

    /// Waits until each run is ready or has ended.
    async fn settled(&mut self) {
        let clients = &mut self.origin.clients;
        until("a run is neither ready nor ended", async || {
            let states: Vec<_> = runs(clients).await.iter().map(v1::Run::state).collect();
            states.iter().all(|state| [State::Ready, State::Stopped, State::Failed].contains(state))
        })
        .await;
    }

    /// Asserts that nothing is there but the base, the checkpoint and the run.
    async fn nothing_is_left(&mut self) {
        self.settled().await;
        for run in runs(&mut self.origin.clients).await {
            if run.run_id == self.origin.run.run_id {
                assert_eq!((run.state(), run.holds.len()), (State::Ready, 0), "{}", run.failure);
                continue;
            }
            assert!(run.state() == State::Failed && !run.failure.is_empty(), "{run:?}");
            RunHandle { run, clients: self.origin.clients.clone() }.delete().await;
        }
        let get = v1::GetBaseRequest { base_id: self.base.clone() };
        self.origin.clients.bases.get_base(get).await.expect("the base of a live run is gone");
        assert!(self.others().await.is_empty());
        let daemon = &self.daemon;
        let kept = [self.kept.checkpoint_id.clone()];
        until("a part of a checkpoint is left", async || forks::trees(daemon) == kept).await;
        let containers = [self.origin.run.container_id.clone()];
        until("a container is left", async || daemon.containers() == containers).await;
        let id = self.origin.id();
        until("a directory or a mount is left", async || left(daemon, id).is_empty()).await;
    }
}

/// Returns true if the file of this number has the word, and nothing else.
fn has(directory: &Path, file: usize, word: &str) -> bool {
    std::fs::read_to_string(directory.join(format!("f{file}"))).unwrap() == format!("{word}\n")
}

/// Returns the directories and mounts that are of no run, or of another run.
fn left(daemon: &Daemon, run: &str) -> Vec<String> {
    let kinds = ["workspaces", "overlays", "runs", "roots", "mounts", "host-worker", "spool", "sessions"];
    let directories = kinds.into_iter().flat_map(|kind| {
        let entries = std::fs::read_dir(daemon.state_dir().join(kind)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path().display().to_string())
    });
    directories.chain(daemon.mounts()).filter(|path| !path.contains(run)).collect()
}

/// Returns the moment of a kill: they are spread evenly.
fn moment(number: u32, all: u32) -> Duration {
    SPREAD * (2 * number + 1) / (2 * all)
}

/// Ten moments, two hundred with `COFFERDAM_LONG`.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_at_any_moment_leaves_no_half_of_a_fork_and_nothing_else() {
    let rounds = effort::cases(2, 40);
    let mut scene = Scene::set().await;
    for round in 0..rounds {
        for step in STEPS {
            let now = format!("{step:?}-{round}").to_lowercase();
            println!("{now}");
            fill(&mut scene.origin, &now).await;
            let after = moment(round, rounds);
            match step {
                Step::Checkpoint => scene.checkpoint(&now, after).await,
                Step::Fork => scene.fork(&now, after).await,
                Step::Restore => scene.restore(&now, after).await,
                Step::Accept => scene.accept(&now, after).await,
                Step::Prune => scene.prune(after).await,
            }
            scene.nothing_is_left().await;
        }
    }
    let Scene { daemon, base, mut origin, kept } = scene;
    let mut clients = daemon.connect().await;
    let request = v1::VerifyBaseRequest { base_id: base };
    assert!(clients.bases.verify_base(request).await.unwrap().into_inner().intact);
    forks::restore(&mut clients, origin.id(), &kept.checkpoint_id).await.unwrap();
    assert_eq!(word(&mut origin).await, KEPT, "the checkpoint that was kept is whole");
    assert!(clients.verify().await.intact);
    end(&mut origin).await;
    assert_eq!(daemon.left_by_runs(), (vec![], vec![]));
}
