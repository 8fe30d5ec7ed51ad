//! Calls of one run beside a pool that has to be filled again and again.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::calls;
use harness::v1::Run;
use harness::v1::run::StartKind;

use super::READY;
use super::ours::{Client, FILE, Ours, filled};
use crate::sample::Sample;

/// Calls of each kind, once without and once with a refill beside them.
const CALLS: usize = 400;
/// Kinds of calls, in the order of their samples.
pub(crate) const KINDS: [&str; 2] = ["exec of true", "read of 4 KiB"];
/// Time from the end of a run that was claimed to the next claim: the pool is rarely full, and rarely empty.
const PACE: Duration = Duration::from_millis(400);

/// Times of calls, and the claims beside which some of them were made.
pub(crate) struct Beside {
    pub(crate) idle: [Sample; 2],
    pub(crate) refill: [Sample; 2],
    /// Runs that were made meanwhile.
    pub(crate) made: usize,
    /// Those of them that were ready before they were asked for.
    pub(crate) warm: usize,
}

pub(crate) async fn measure(image: &str) -> Beside {
    let ours = Ours::warm(image, READY).await;
    let (workspace, others) = (ours.workspace("one"), ours.workspace("others"));
    let run = ours.client.create(&workspace).await.unwrap();
    filled(&ours, READY + 1).await;
    // The first calls are thrown away.
    called(&ours, &run, CALLS / 20).await;
    let idle = called(&ours, &run, CALLS).await;
    let ends = Arc::new(AtomicBool::new(false));
    let claims = tokio::spawn(claim(ours.client.clone(), others, Arc::clone(&ends)));
    let refill = called(&ours, &run, CALLS).await;
    ends.store(true, Ordering::Relaxed);
    let (made, warm) = claims.await.unwrap();
    ours.client.stop(&run).await;
    Beside { idle, refill, made, warm }
}

/// Calls of each kind in turns.
async fn called(ours: &Ours, run: &Run, count: usize) -> [Sample; 2] {
    let mut samples = [Sample::default(), Sample::default()];
    for _ in 0..count {
        for (sample, operation) in samples.iter_mut().zip([calls::exec(&["true"]), calls::read(FILE)]) {
            let began = Instant::now();
            ours.client.call(run, operation).await;
            sample.add(began.elapsed());
        }
    }
    samples
}

/// Makes and ends one run after the other. Returns how many, and how many of them were warm.
async fn claim(client: Client, workspace: PathBuf, ends: Arc<AtomicBool>) -> (usize, usize) {
    let (mut made, mut warm) = (0, 0);
    while !ends.load(Ordering::Relaxed) {
        let run = client.create(&workspace).await.unwrap();
        made += 1;
        warm += usize::from(run.start_kind() == StartKind::Warm);
        client.stop(&run).await;
        tokio::time::sleep(PACE).await;
    }
    (made, warm)
}
