//! Runs, from their making to their end: against the engine's own API and against others that make sandboxes, alone and a hundred at
//! once; what an idle one costs; how calls scale with runs and clients; and what an agent made of them.

mod burst;
mod costs;
mod curve;
mod lives;
mod ours;
mod peers;
mod plot;
mod record;
mod refill;
mod report;
mod trace;

use std::process::ExitCode;

use harness::dev_image;
use harness::v1::run::StartKind;

use self::burst::Burst;
use self::costs::{Costs, Snapshot};
use self::lives::{Contender, LeftOut, Lives, Plain};
use self::ours::{Ours, has_pool};
use self::report::Report;
use self::trace::Replayed;
use crate::args::{Args, Runs};
use crate::engine::Engine;
use crate::host::Host;
use crate::verdict::{self, Ratios, Verdict};

const BASELINE: &str = "baseline.json";
/// Runs of a burst, and idle ones whose cost is measured.
const MANY: usize = 100;
/// Containers that are kept ready while lives are measured one after the other.
const READY: usize = 2;
/// Cofferdam's lives by name.
const COLD: &str = "Cofferdam, cold";
const WARM: &str = "Cofferdam, warm";
const WRITABLE: &str = "Cofferdam, warm, harness";
const ENGINE: &str = "engine, API";
/// A daemon that keeps no containers ready has not this one of the baseline's ratios.
const WARM_RATIO: &str = "ready, warm / create and start";

/// Measures, prints, and checks if that is asked for.
pub(crate) async fn run(args: &Args) -> ExitCode {
    let image = dev_image();
    if args.runs == Runs::Trace {
        trace::write(&record::record(&Ours::cold(&image).await).await);
        return ExitCode::SUCCESS;
    }
    let report = measure(args, &image).await;
    lives::sweep().await;
    print!("{report}");
    written(args, &report);
    checked(args, &report)
}

async fn measure(args: &Args, image: &str) -> Report {
    let (began, engine, all) = (Host::look(), Engine::find(), args.runs == Runs::All);
    let pool = has_pool(image);
    let (lives, mut left_out, trace) = alone(args, image, pool).await;
    let mut bursts = Vec::new();
    let (mut costs, mut beside) = (None, None);
    if all {
        let (burst, measured) = crowd(image).await;
        bursts.push(burst);
        costs = Some(measured);
        if pool {
            bursts.push(warm_burst(image).await);
            beside = Some(refill::measure(image).await);
        }
        bursts.push(engines_burst(image).await);
    }
    if !pool {
        left_out.push((WARM, "not configured".to_owned()));
    }
    let curve = if all { curve::run(image, args.load / 5).await } else { Vec::new() };
    let ratios = ratios(&lives, &trace);
    let (ended, date, engine) = (Host::look(), costs::today(), engine.version().await);
    Report {
        began,
        ended,
        date,
        engine,
        has_pool: pool,
        lives,
        left_out,
        bursts,
        beside,
        trace,
        costs,
        curve,
        ratios,
    }
}

/// One life after the other, and the trace.
async fn alone(args: &Args, image: &str, pool: bool) -> (Vec<Lives>, LeftOut, Replayed) {
    let (ours, engine) = (Ours::cold(image).await, Engine::find());
    let plain = Plain { image: image.to_owned(), workspace: ours.workspace("bench") };
    let mut contenders = vec![
        (COLD, Contender::Ours(&ours, StartKind::Cold)),
        (ENGINE, Contender::EngineApi(&engine, plain.clone())),
    ];
    let warm = if pool { Some(Ours::warm(image, READY).await) } else { None };
    if let Some(warm) = &warm {
        warm.workspace("bench");
        contenders.push((WARM, Contender::Ours(warm, StartKind::Warm)));
    }
    let writable = if pool { Some(Ours::writable(image, READY).await) } else { None };
    if let Some(writable) = &writable {
        writable.workspace("bench");
        contenders.push((WRITABLE, Contender::Ours(writable, StartKind::Warm)));
    }
    let mut left_out = Vec::new();
    if args.runs == Runs::All {
        let (peers, missing) = peers::start(image, &plain.workspace);
        left_out = missing;
        contenders.push(("docker, command line", Contender::CommandLine(plain)));
        contenders.extend(peers.into_iter().map(|(name, peer)| (name, Contender::Peer(Box::new(peer)))));
    }
    let (lives, failed) = lives::hold(contenders, args.rounds).await;
    left_out.extend(failed);
    (lives, left_out, trace::replay(&ours).await)
}

/// A hundred cold starts at once, and what the hundred cost while they are idle.
async fn crowd(image: &str) -> (Burst, Costs) {
    let ours = Ours::cold(image).await;
    // The daemon is warmed up.
    let workspace = ours.workspace("one");
    let first = ours.client.create(&workspace).await.unwrap();
    ours.client.call(&first, harness::calls::exec(&["true"])).await;
    let few = Snapshot::take(&ours, std::slice::from_ref(&first)).await;
    let (mut burst, mut runs) = burst::ours(&ours, COLD, MANY).await;
    eprintln!("burst of {MANY}: done");
    runs.push(first);
    let many = Snapshot::take(&ours, &runs).await;
    burst::end(&ours, &mut burst, runs).await;
    tokio::time::sleep(costs::SETTLED).await;
    (burst, Costs { few, many, ended: costs::resident(&ours) })
}

/// A hundred warm starts at once.
async fn warm_burst(image: &str) -> Burst {
    let ours = Ours::warm(image, MANY).await;
    ours::filled(&ours, MANY).await;
    let (mut burst, runs) = burst::ours(&ours, WARM, MANY).await;
    burst::end(&ours, &mut burst, runs).await;
    burst
}

async fn engines_burst(image: &str) -> Burst {
    let place = tempfile::Builder::new().tempdir_in("/var/tmp").unwrap();
    burst::engine(&Plain { image: image.to_owned(), workspace: place.path().to_owned() }, MANY).await
}

/// What the baseline has.
fn ratios(lives: &[Lives], trace: &Replayed) -> Ratios {
    let median = |name: &str, step: &str| {
        let found = lives.iter().find(|lives| lives.name == name)?.median(step)?;
        Some(found.as_secs_f64())
    };
    let mut ratios = Ratios::new();
    let mut add = |name: &str, ours: Option<f64>, theirs: Option<f64>| {
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            ratios.insert(name.to_owned(), ours / theirs);
        }
    };
    let of = |step| (median(COLD, step), median(ENGINE, step));
    for (name, step) in [
        ("ready, cold / create and start", "ready"),
        ("exec of true / engine's exec of true", "true"),
        ("read / engine's exec of cat", "read"),
        ("stop / forced removal", "stop"),
    ] {
        let (ours, theirs) = of(step);
        add(name, ours, theirs);
    }
    add("container gone / forced removal", median(COLD, "gone"), median(ENGINE, "stop"));
    add(WARM_RATIO, median(WARM, "ready"), median(ENGINE, "ready"));
    let calls = u32::try_from(trace.calls).map(|calls| (trace.took / calls).as_secs_f64()).ok();
    add("call of the trace / engine's exec of true", calls, Some(trace.exec.median().as_secs_f64()));
    ratios
}

fn written(args: &Args, report: &Report) {
    if let Some(path) = &args.json {
        verdict::write(path, &report.json());
    }
    if let (Some(path), Some(costs)) = (&args.costs, report.costs_json()) {
        verdict::write(path, &format!("{costs:#}\n"));
    }
    if let Some(path) = &args.plot {
        plot::draw(&report.curve, &report.machine(), path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

fn checked(args: &Args, report: &Report) -> ExitCode {
    let spared: &[&str] = if report.has_pool { &[] } else { &[WARM_RATIO] };
    let verdict = match (args.runs, args.check) {
        (Runs::Baseline, _) => Verdict::Store,
        (_, true) => Verdict::Check,
        _ => Verdict::Nothing,
    };
    verdict.give(BASELINE, &report.ratios, spared)
}
