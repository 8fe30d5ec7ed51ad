//! Warm starts of runs as agent frameworks make them, runs on bases, checkpoints, restores and forks, each against the plain work
//! that is in it: a start without a pool, `git clone --local`, `cp -a` of the changes.

mod beside;
mod clones;
mod family;
mod place;
mod snapshots;
mod starts;

use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use harness::v1::{CreateRunRequest, DeleteRunRequest, Run, StopRunRequest};
use harness::{Clients, Daemon, Setup, dev_image};
use tokio::process::Command;

use self::place::Place;
use crate::args::{Args, Runs};
use crate::host::Host;
use crate::table::Table;

/// The profile of all runs here. Their root is writable.
const PROFILE: &str = "harness";
/// Rounds that are thrown away.
const WARM_UP: usize = 2;
/// Time between two looks at the containers of a daemon.
const LOOK: Duration = Duration::from_millis(200);
/// Longest time until a pool is full.
const PATIENCE: Duration = Duration::from_secs(900);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
struct Size {
    /// Rounds of each comparison.
    rounds: usize,
    /// Files of the repository.
    files: usize,
    /// Forks that are made by one request.
    many: u32,
    /// How often so many are made.
    batches: usize,
}

impl Size {
    fn of(args: &Args) -> Self {
        match args.runs {
            Runs::Ratios => Self { rounds: args.rounds.min(10), files: 5_000, many: 10, batches: 1 },
            _ => Self { rounds: args.rounds, files: 50_000, many: 100, batches: 3 },
        }
    }
}

/// Measures, prints, and checks if that is asked for.
pub(crate) async fn run(args: &Args) -> ExitCode {
    let (began, image, size) = (Host::look(), dev_image(), Size::of(args));
    let mut rows = Box::pin(starts::measure(&image, size)).await;
    let place = Place::make(&image, size).await;
    rows.extend(clones::measure(&place, size).await);
    rows.extend(snapshots::measure(&place, size).await);
    rows.extend(Box::pin(beside::measure(&place)).await);
    drop(place);
    rows.extend(Box::pin(family::measure(&image, size, true)).await);
    rows.extend(Box::pin(family::measure(&image, size, false)).await);
    let columns = ["against", "cofferdam"];
    Table { lane: "forks", columns, began, ended: Host::look(), rows }.finish(args)
}

/// Starts a daemon that keeps so many containers ready.
async fn daemon(image: &str, ready: usize) -> Daemon {
    let pool = match ready {
        0 => String::new(),
        ready => {
            format!("pool: [{{ profile: {PROFILE}, image: \"{image}\", min: {ready}, max: {ready} }}]\n")
        }
    };
    let config = format!("checkpoints: {{ max_count: 10000, max_per_run: 10000, max_bytes: 64GiB }}\n{pool}");
    Daemon::start_with(Setup { config, ..Setup::default() }).await
}

/// Returns how often the pool was full so far.
fn times_full(daemon: &Daemon) -> usize {
    daemon.log().matches("warm containers wait").count()
}

/// Waits until the daemon has exactly so many containers and its pool was full more often than `before`.
async fn filled(daemon: &Daemon, containers: usize, before: usize) {
    let fills = async {
        // The engine and the log alone show it.
        while daemon.containers().len() != containers || times_full(daemon) <= before {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, fills).await.expect("the pool is not filled");
}

/// Makes a run, and returns it with the time until it is READY.
async fn created(clients: &mut Clients, request: CreateRunRequest) -> (Duration, Run) {
    let began = Instant::now();
    let answer = clients.runs.create_run(request).await.unwrap();
    (began.elapsed(), answer.into_inner().run.unwrap())
}

/// Ends a run and deletes it with its workspace.
async fn end(clients: &mut Clients, run: &Run) {
    let run_id = run.run_id.clone();
    clients.runs.stop_run(StopRunRequest { run_id: run_id.clone() }).await.unwrap();
    clients.runs.delete_run(DeleteRunRequest { run_id, delete_workspace: true }).await.unwrap();
}

/// Copies a directory as a person would, and returns the time. With `durable`, also until it is on the disk.
async fn copied(from: &Path, to: &Path, durable: bool) -> Duration {
    let began = Instant::now();
    succeeds(Command::new("cp").arg("-a").arg(from).arg(to)).await;
    if durable {
        succeeds(Command::new("sync").arg("--file-system").arg(to)).await;
    }
    let took = began.elapsed();
    std::fs::remove_dir_all(to).unwrap();
    took
}

async fn succeeds(command: &mut Command) {
    let status = command.stdin(Stdio::null()).status().await.unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
