//! Calls of one run, while another one is forked, checkpointed and restored again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::v1::operation::Kind as Operation;
use harness::{Clients, RunHandle, calls, forks, requests};

use super::place::{Changes, Place};
use super::{PROFILE, end};
use crate::sample::Sample;
use crate::table::{Most, Row};

/// Calls of each kind, once without and once with the others beside them.
const CALLS: usize = 400;
/// Most times that the 99th percentile of a call may grow.
const TIMES: f64 = 2.0;
const FILE: &str = "file";
/// Changes of 20 MiB in the run that is forked.
const CHANGES: Changes = Changes { files: 200, bytes: 104_858 };
/// Forks of each request.
const FORKS: u32 = 2;
/// Time from the end of the forks to the next ones.
const PACE: Duration = Duration::from_millis(400);

pub(super) async fn measure(place: &Place) -> Vec<Row> {
    let mut run = place.daemon.run_on(place.with_image(requests::managed(PROFILE))).await;
    run.ok(calls::write(FILE, &"a line of a file that an agent reads\n".repeat(100))).await;
    let mut other = place.overlay().await;
    CHANGES.make(&mut other).await;
    // The first calls are thrown away.
    called(&mut run, CALLS / 20).await;
    let quiet = called(&mut run, CALLS).await;
    let ends = Arc::new(AtomicBool::new(false));
    let clients = place.daemon.connect().await;
    let load = tokio::spawn(work(clients, other.id().to_owned(), Arc::clone(&ends)));
    let beside = called(&mut run, CALLS).await;
    ends.store(true, Ordering::Relaxed);
    let made = load.await.unwrap();
    for ended in [run, other] {
        end(&mut ended.clients.clone(), &ended.run).await;
    }
    eprintln!("calls beside {made} forks, with their checkpoints and restores: done");
    assert!(made > 0, "no fork was made meanwhile");
    let kinds = ["exec of true in another run", "read of 4 KiB in another run"];
    let rows = kinds.into_iter().zip(quiet.iter().zip(&beside)).flat_map(|(what, (quiet, beside))| {
        Row::of_both(what, Some(quiet), beside, [Most::Unbounded, Most::Times(TIMES)])
    });
    rows.collect()
}

/// Calls of each kind in turns.
async fn called(run: &mut RunHandle, count: usize) -> [Sample; 2] {
    let mut samples = [Sample::default(), Sample::default()];
    for _ in 0..count {
        let operations: [Operation; 2] = [calls::exec(&["true"]), calls::read(FILE)];
        for (sample, operation) in samples.iter_mut().zip(operations) {
            let began = Instant::now();
            run.ok(operation).await;
            sample.add(began.elapsed());
        }
    }
    samples
}

/// Forks, checkpoints and restores the run until it is told to end. Returns the number of forks.
async fn work(mut clients: Clients, run: String, ends: Arc<AtomicBool>) -> usize {
    let mut made = 0;
    while !ends.load(Ordering::Relaxed) {
        let forked = forks::fork(&mut clients, forks::of_run(&run, FORKS)).await.unwrap();
        made += forked.forks.len();
        let checkpoint = forked.checkpoint.unwrap().checkpoint_id;
        let restored = forks::restore(&mut clients, &run, &checkpoint).await.unwrap();
        for fork in forked.forks {
            end(&mut clients, &fork.run.unwrap()).await;
        }
        for id in [checkpoint, restored.before.unwrap().checkpoint_id] {
            forks::delete(&mut clients, &id).await.unwrap();
        }
        tokio::time::sleep(PACE).await;
    }
    made
}
