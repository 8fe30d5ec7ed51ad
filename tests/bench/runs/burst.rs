//! Many runs asked for at the same moment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::v1::Run;
use harness::v1::run::StartKind;
use tokio::task::JoinSet;

use super::lives::Plain;
use super::ours::Ours;
use crate::engine::Engine;
use crate::sample::Sample;

/// How it went.
#[derive(Debug)]
pub(crate) struct Burst {
    pub(crate) name: &'static str,
    pub(crate) asked: usize,
    /// Those that were refused or could not be made.
    pub(crate) failed: usize,
    /// Those that were ready before they were asked for.
    pub(crate) warm: usize,
    /// Until the last was ready.
    pub(crate) took: Duration,
    /// Until each was ready, from the common beginning.
    pub(crate) each: Sample,
    /// Until all were ended, asked for at the same moment.
    pub(crate) ended: Duration,
}

/// Runs of ours, which live on; [`end`] ends them.
pub(crate) async fn ours(ours: &Ours, name: &'static str, count: usize) -> (Burst, Vec<Run>) {
    // They have their workspaces before.
    let workspaces: Vec<PathBuf> =
        (0..count).map(|number| ours.workspace(&format!("burst-{number}"))).collect();
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for workspace in workspaces {
        let client = ours.client.clone();
        tasks.spawn(async move { (client.create(&workspace).await, began.elapsed()) });
    }
    let (mut runs, mut each) = (Vec::new(), Sample::default());
    while let Some(made) = tasks.join_next().await {
        match made.unwrap() {
            (Ok(run), took) => {
                runs.push(run);
                each.add(took);
            }
            (Err(status), _) => eprintln!("a run of the burst: {status}"),
        }
    }
    let warm = runs.iter().filter(|run| run.start_kind() == StartKind::Warm).count();
    let (failed, took) = (count - runs.len(), began.elapsed());
    (Burst { name, asked: count, failed, warm, took, each, ended: Duration::ZERO }, runs)
}

/// Ends the runs of a burst at the same moment, and forgets them.
pub(crate) async fn end(ours: &Ours, burst: &mut Burst, runs: Vec<Run>) {
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for run in runs {
        let client = ours.client.clone();
        tasks.spawn(async move {
            client.stop(&run).await;
            let took = began.elapsed();
            client.delete(&run).await;
            took
        });
    }
    burst.ended = tasks.join_all().await.into_iter().max().unwrap_or_default();
}

/// The same number of containers at the engine's API.
pub(crate) async fn engine(plain: &Plain, count: usize) -> Burst {
    let (engine, config) = (Engine::find(), Arc::new(plain.config()));
    let (mut tasks, began) = (JoinSet::new(), Instant::now());
    for _ in 0..count {
        let (engine, config) = (engine.clone(), Arc::clone(&config));
        tasks.spawn(async move { (engine.run(&config).await, began.elapsed()) });
    }
    let made = tasks.join_all().await;
    let took = began.elapsed();
    let (mut each, mut removals, began) = (Sample::default(), JoinSet::new(), Instant::now());
    for (container, ready) in made {
        each.add(ready);
        let engine = engine.clone();
        removals.spawn(async move { engine.remove(&container).await });
    }
    removals.join_all().await;
    Burst { name: "engine, API", asked: count, failed: 0, warm: 0, took, each, ended: began.elapsed() }
}
