//! Checkpoints of a run with few changes on a large repository, and restores of it, against a durable copy of the changes.

use std::time::{Duration, Instant};

use harness::{Clients, RunHandle, forks};

use super::place::{Changes, Place, copy_of};
use super::{Size, WARM_UP, copied, end};
use crate::sample::Sample;
use crate::table::{Most, Row};

/// Changes of 1 MiB.
const CHANGES: Changes = Changes { files: 16, bytes: 64 << 10 };
/// Longest median of a checkpoint.
const CHECKPOINT: Duration = Duration::from_millis(30);

/// Times of one round.
struct Round {
    copy: Duration,
    checkpoint: Duration,
    frozen: Duration,
    restore: Duration,
}

pub(super) async fn measure(place: &Place, size: Size) -> Vec<Row> {
    let mut run = place.overlay().await;
    let mut clients = place.daemon.connect().await;
    let beside = CHANGES.beside(&place.daemon, "small");
    let mut rounds = Vec::new();
    for round in 0..WARM_UP + size.rounds {
        let copy = copied(&beside, &copy_of(&beside), true).await;
        let taken = taken(&mut run, &mut clients, copy).await;
        if round >= WARM_UP {
            rounds.push(taken);
        }
    }
    end(&mut clients, &run.run).await;
    eprintln!("checkpoints: done");
    let sample = |of: fn(&Round) -> Duration| {
        let mut sample = Sample::default();
        for round in &rounds {
            sample.add(of(round));
        }
        sample
    };
    let copies = sample(|round| round.copy);
    let rows = [
        Row::of_times(
            "checkpoint of 1 MiB",
            Some(&copies),
            &sample(|round| round.checkpoint),
            Most::All(CHECKPOINT),
        ),
        Row::of_times("of it frozen", None, &sample(|round| round.frozen), Most::Unbounded),
        Row::of_times("restore of 1 MiB", Some(&copies), &sample(|round| round.restore), Most::Unbounded),
    ];
    rows.into_iter().flatten().collect()
}

/// Makes a checkpoint of new changes, changes all of them again, and restores them.
async fn taken(run: &mut RunHandle, clients: &mut Clients, copy: Duration) -> Round {
    const SUM: [&str; 3] = ["sh", "-c", "cat changed/* | sha256sum"];
    CHANGES.make(run).await;
    let sum = run.exec(&SUM).await.stdout;
    let began = Instant::now();
    let made = forks::checkpoint(clients, run.id()).await.unwrap();
    let checkpoint = began.elapsed();
    CHANGES.make(run).await;
    assert_ne!(run.exec(&SUM).await.stdout, sum);
    let began = Instant::now();
    let restored = forks::restore(clients, run.id(), &made.checkpoint_id).await.unwrap();
    let restore = began.elapsed();
    assert_eq!(run.exec(&SUM).await.stdout, sum);
    for id in [made.checkpoint_id, restored.before.unwrap().checkpoint_id] {
        forks::delete(clients, &id).await.unwrap();
    }
    Round { copy, checkpoint, frozen: Duration::from_micros(made.frozen_us), restore }
}
