//! Forks of a run with 20 MiB of changes on a large repository: one after the other, and many by one request.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::v1::run::StartKind;
use harness::v1::{CreateRunRequest, ForkRunRequest, GetRunRequest, Run};
use harness::{Clients, Daemon, forks, requests};
use tokio::task::JoinSet;

use super::place::{Changes, copy_of, repository};
use super::{LOOK, PATIENCE, PROFILE, Size, WARM_UP, copied, daemon, end, filled, times_full};
use crate::report::mib;
use crate::sample::Sample;
use crate::table::{Most, Row};

/// Changes of 20 MiB.
const CHANGES: Changes = Changes { files: 200, bytes: 104_858 };
/// Most time of a warm fork beyond the copy of its changes. A hundred may take a hundred times as long, the copies included.
const EACH: Duration = Duration::from_millis(15);
/// Largest part of the changes that the forks may take beside them, percent.
const MORE_DISK: f64 = 10.0;

/// A run whose forks are measured.
struct Family {
    daemon: Daemon,
    clients: Clients,
    run: String,
    checkpoint: String,
    /// The same changes on the host.
    changes: PathBuf,
    /// Containers that are kept ready.
    ready: usize,
}

/// Measures forks of containers that wait, or of none.
pub(super) async fn measure(image: &str, size: Size, is_warm: bool) -> Vec<Row> {
    let mut family = Family::make(image, size, if is_warm { size.many as usize } else { 0 }).await;
    let mut rows = Vec::new();
    if is_warm {
        rows.extend(family.one_by_one(size.rounds).await);
    }
    rows.extend(family.many(size, is_warm).await);
    rows
}

/// Forks of one request.
struct Forked {
    /// Time until all of them were READY.
    took: Duration,
    checkpoint: String,
    runs: Vec<Run>,
}

impl Family {
    async fn make(image: &str, size: Size, ready: usize) -> Self {
        let daemon = daemon(image, ready).await;
        let repository = repository(&daemon, size.files);
        if ready > 0 {
            filled(&daemon, ready, 0).await;
        }
        let request = CreateRunRequest { image: image.to_owned(), ..requests::overlay(PROFILE, &repository) };
        let mut run = daemon.run_on(request).await;
        assert_eq!(run.run.start_kind() == StartKind::Warm, ready > 0, "{:?}", run.run.cold_because());
        CHANGES.make(&mut run).await;
        let mut clients = daemon.connect().await;
        let checkpoint = forks::checkpoint(&mut clients, run.id()).await.unwrap().checkpoint_id;
        if ready > 0 {
            filled(&daemon, ready + 1, 1).await;
        }
        let changes = CHANGES.beside(&daemon, "changes");
        Self { daemon, clients, run: run.id().to_owned(), checkpoint, changes, ready }
    }

    /// Makes one fork after the other, of the checkpoint and of the live run, each from a full pool.
    async fn one_by_one(&mut self, rounds: usize) -> Vec<Row> {
        let mut copies = Sample::default();
        let (mut samples, mut warm) = ([Sample::default(), Sample::default()], [0, 0]);
        for round in 0..WARM_UP + rounds {
            let copy = copied(&self.changes, &copy_of(&self.changes), false).await;
            if round >= WARM_UP {
                copies.add(copy);
            }
            let requests = [forks::of_checkpoint(&self.checkpoint, 1), forks::of_run(&self.run, 1)];
            for ((request, sample), warm) in requests.into_iter().zip(&mut samples).zip(&mut warm) {
                let before = times_full(&self.daemon);
                let forked = self.forked(request).await;
                let is_warm = forked.runs[0].start_kind() == StartKind::Warm;
                if round >= WARM_UP {
                    sample.add(forked.took);
                    *warm += usize::from(is_warm);
                }
                self.end_all(forked).await;
                if is_warm {
                    filled(&self.daemon, self.ready + 1, before).await;
                }
            }
        }
        eprintln!("one fork after the other: done, {warm:?} of {rounds} warm");
        let what = |origin: &str, warm: usize| format!("fork of {origin}, {warm} of {rounds} warm");
        let [of_checkpoint, of_run] = &samples;
        let rows = [
            Row::of_times(&what("a checkpoint", warm[0]), Some(&copies), of_checkpoint, Most::More(EACH)),
            Row::of_times(&what("a live run", warm[1]), Some(&copies), of_run, Most::Unbounded),
        ];
        rows.into_iter().flatten().collect()
    }

    /// Makes many forks of the live run by one request, a few times.
    async fn many(&mut self, size: Size, is_warm: bool) -> Vec<Row> {
        let (mut copies, mut samples) = (Sample::default(), Sample::default());
        let (mut warm, mut disk) = (0, Vec::new());
        for batch in 0..size.batches {
            let before = times_full(&self.daemon);
            let mut copy = Duration::ZERO;
            for _ in 0..size.many {
                copy += copied(&self.changes, &copy_of(&self.changes), false).await;
            }
            let forked = self.forked(forks::of_run(&self.run, size.many)).await;
            warm += forked.runs.iter().filter(|fork| fork.start_kind() == StartKind::Warm).count();
            copies.add(copy);
            samples.add(forked.took);
            let is_last = batch + 1 == size.batches;
            if is_last {
                disk = self.disk(&forked.runs).await;
            }
            self.end_all(forked).await;
            if self.ready > 0 && !is_last {
                filled(&self.daemon, self.ready + 1, before).await;
            }
        }
        let count = size.many as usize * size.batches;
        eprintln!("many forks at once: done, {warm} of {count} warm");
        let (kind, whole, each) = if is_warm {
            ("a pool", Most::All(EACH * size.many), Most::All(EACH))
        } else {
            ("no pool", Most::Unbounded, Most::Unbounded)
        };
        let what = format!("{} forks at once, {kind}, {warm} of {count} warm", size.many);
        let (copy, took) = (copies.median(), samples.median());
        let beyond = took.saturating_sub(copy) / size.many;
        let mut rows = vec![
            Row::of_time(what, Some(copy), took, whole),
            Row::of_time(format!("each of these beyond its copy, {kind}"), None, beyond, each),
        ];
        rows.append(&mut disk);
        rows
    }

    /// Makes forks by one request, all of which must be READY.
    async fn forked(&mut self, request: ForkRunRequest) -> Forked {
        let count = request.count as usize;
        let began = Instant::now();
        let made = forks::fork(&mut self.clients, request).await.unwrap();
        let took = began.elapsed();
        assert_eq!((made.forks.len(), made.failures.len()), (count, 0), "{:?}", made.failures);
        let runs = made.forks.into_iter().map(|fork| fork.run.unwrap()).collect();
        Forked { took, checkpoint: made.checkpoint.unwrap().checkpoint_id, runs }
    }

    /// Returns the rows of the disk that forks take, as the daemon and `du` say.
    async fn disk(&mut self, forks: &[Run]) -> Vec<Row> {
        let mut daemon = 0;
        for fork in forks {
            daemon += self.used(&fork.run_id).await;
        }
        let changes = CHANGES.total() * forks.len() as u64;
        let rows = [("the daemon", daemon), ("du", self.du(forks))];
        rows.map(|(who, used)| disk_row(format!("disk of {} forks, by {who}", forks.len()), changes, used))
            .into()
    }

    /// Returns the use of a fork once the daemon has measured all of it, bytes.
    async fn used(&mut self, run_id: &str) -> u64 {
        let measured = async {
            loop {
                let request = GetRunRequest { run_id: run_id.to_owned() };
                let run = self.clients.runs.get_run(request).await.unwrap().into_inner().run.unwrap();
                let used = run.disk.map_or(0, |disk| disk.used_bytes);
                if used >= CHANGES.total() {
                    return used;
                }
                // It is measured now and then.
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, measured).await.expect("the use of a fork is not measured")
    }

    /// Returns what the directories of forks take on the disk, bytes.
    fn du(&self, forks: &[Run]) -> u64 {
        let state = self.daemon.state_dir();
        let of_fork = |fork: &Run| {
            ["overlays", "roots", "runs", "workspaces"].map(|kind| state.join(kind).join(&fork.run_id))
        };
        let directories = forks.iter().flat_map(of_fork).filter(|directory| directory.exists());
        let output =
            Command::new("du").args(["-s", "-c", "--block-size=1"]).args(directories).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let total = text.lines().last().and_then(|line| line.split('\t').next());
        total.and_then(|total| total.parse().ok()).expect("du prints a total")
    }

    /// Ends forks at the same moment, and deletes the checkpoint that was made for them.
    async fn end_all(&mut self, forked: Forked) {
        let mut tasks = JoinSet::new();
        for fork in forked.runs {
            let mut clients = self.clients.clone();
            tasks.spawn(async move { end(&mut clients, &fork).await });
        }
        tasks.join_all().await;
        if forked.checkpoint != self.checkpoint {
            forks::delete(&mut self.clients, &forked.checkpoint).await.unwrap();
        }
    }
}

#[allow(clippy::cast_precision_loss)] // far below 2^52
fn disk_row(what: String, changes: u64, used: u64) -> Row {
    let more = 100.0 * (used as f64 / changes as f64 - 1.0);
    Row {
        what,
        other: mib(changes),
        ours: mib(used),
        difference: format!("{more:+.1} %"),
        target: format!("≤ {MORE_DISK:.0} % more"),
        met: Some(more <= MORE_DISK),
    }
}
