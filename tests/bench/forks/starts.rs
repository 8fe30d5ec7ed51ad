//! Starts of runs as agent frameworks make them, with an image, a variable and a writable root: from the pool, against cold ones.

use std::time::Duration;

use harness::v1::run::StartKind;
use harness::v1::{CreateRunRequest, Run};
use harness::{Clients, Daemon, RunHandle, calls, requests};

use super::{PROFILE, Size, WARM_UP, created, daemon, end};
use crate::sample::Sample;
use crate::table::{Most, Row};

/// Longest median of a warm start, and longest 99th percentile.
const WARM: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(20)];
/// Warm starts in each round. A cold one takes as long as many of them.
const TURNS: usize = 4;

pub(super) async fn measure(image: &str, size: Size) -> Vec<Row> {
    let (cold, warm) = (daemon(image, 0).await, daemon(image, 1).await);
    let (mut cold_clients, mut warm_clients) = (cold.connect().await, warm.connect().await);
    let mut samples = [Sample::default(), Sample::default()];
    // So often the pool is full: at first, and after each claim.
    let mut full = 1;
    for round in 0..WARM_UP + size.rounds {
        // A container that is being made would take time from any start.
        warm.pool_is_full(full).await;
        let slow = start(&cold, &mut cold_clients, image, StartKind::Cold).await;
        let mut quick = Sample::default();
        for _ in 0..TURNS {
            warm.pool_is_full(full).await;
            quick.add(start(&warm, &mut warm_clients, image, StartKind::Warm).await);
            full += 1;
        }
        if round >= WARM_UP {
            samples[0].add(slow);
            samples[1].extend(quick);
        }
    }
    eprintln!("starts: done");
    let [slow, quick] = &samples;
    let most = WARM.map(Most::All);
    Row::of_both("start with image, env and writable root", Some(slow), quick, most).into()
}

/// Starts a run and returns the time until it is ready. Then writes to its root, and ends it.
async fn start(daemon: &Daemon, clients: &mut Clients, image: &str, kind: StartKind) -> Duration {
    let request = CreateRunRequest {
        image: image.to_owned(),
        env: [("BENCH".to_owned(), "1".to_owned())].into(),
        ..requests::managed(PROFILE)
    };
    let (took, run) = created(clients, request).await;
    assert_eq!(run.start_kind(), kind, "{:?}\n{}", run.cold_because(), daemon.log());
    writes(&run, clients).await;
    end(clients, &run).await;
    took
}

async fn writes(run: &Run, clients: &Clients) {
    let mut run = RunHandle { run: Box::new(run.clone()), clients: clients.clone() };
    let wrote = run.ran(calls::shell("echo $BENCH >/usr/written && cat /usr/written")).await;
    assert_eq!((wrote.exit_code, wrote.stdout.as_str()), (Some(0), "1\n"), "{}", wrote.stderr);
}
