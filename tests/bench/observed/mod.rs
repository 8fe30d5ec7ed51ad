//! Calls of a daemon that is observed by all means at once, against the same calls of one that is not.
//!
//! The observed daemon has its metrics scraped, exports one trace in ten, and serves its console to twenty open pages. Both daemons are the
//! same program and take turns, which are so far apart that no work of one falls on the other.

mod browsers;
mod observers;

use std::process::ExitCode;
use std::time::Duration;

use harness::v1::result::Kind as Answer;
use harness::{Setup, calls};

use self::observers::Observers;
use crate::args::Args;
use crate::contest::{Contender, Parts, call, hold};
use crate::host::Host;
use crate::sample::Sample;
use crate::stage::{FILE_BYTES, Stage};
use crate::table::{Most, Row, Table};
use crate::usage::Watched;

/// Rounds that are thrown away.
const WARM_UP: usize = 1;
/// Times that the calls of a turn are repeated.
const CYCLES: usize = 100;
/// The calls of a cycle, each with its number.
const CALLS: [(&str, usize); 3] = [("read of 4 KiB", 20), ("exec of true", 3), ("write of 4 KiB", 4)];
/// Time before a turn, in which pages that were told of the other turn have been asked for again.
const SETTLED: Duration = Duration::from_secs(5);
/// Most times that the median may be of that without observers.
const MEDIAN: f64 = 1.03;
/// The same of the 99th percentile.
const P99: f64 = 1.05;

/// Measures, prints, and checks if that is asked for.
pub(crate) async fn run(args: &Args) -> ExitCode {
    let began = Host::look();
    let rows = measure(args.rounds).await;
    Table { lane: "observed", columns: ["plain", "observed"], began, ended: Host::look(), rows }.finish(args)
}

/// One call, measured in each round: its medians and its 99th percentiles.
type Quantiles = [Sample; 2];

/// The measures of one daemon.
#[derive(Default)]
struct Measures {
    calls: [Quantiles; CALLS.len()],
    /// Processor time of the daemon in each turn.
    spent: Sample,
}

async fn measure(rounds: usize) -> Vec<Row> {
    let mut observers = Observers::default();
    let plain = stage(String::new()).await;
    let observed = stage(observers.config().await).await;
    observers.watch(&observed.daemon).await;
    let mut measures = [Measures::default(), Measures::default()];
    let all = WARM_UP + rounds;
    for round in 0..all {
        let mut sides = [(&plain, 0), (&observed, 1)];
        if !round.is_multiple_of(2) {
            sides.reverse();
        }
        for (stage, side) in sides {
            let (calls, spent) = turn(stage).await;
            if round < WARM_UP {
                continue;
            }
            measures[side].spent.add(spent);
            for (quantiles, sample) in measures[side].calls.iter_mut().zip(calls) {
                quantiles[0].add(sample.median());
                quantiles[1].add(sample.p99());
            }
        }
        eprintln!("round {} of {}: done", round + 1, all);
    }
    let noted = observers.end().await;
    let [plain, observed] = &measures;
    let names = CALLS.iter().map(|(name, _)| *name);
    let quantiles =
        names.zip(plain.calls.iter().zip(&observed.calls)).flat_map(|(name, (plain, observed))| {
            [("p50", MEDIAN), ("p99", P99)].into_iter().zip(plain.iter().zip(observed)).map(
                move |((quantile, most), (plain, observed))| {
                    let what = format!("{name}, {quantile}");
                    Row::of_time(what, Some(plain.median()), observed.median(), Most::Times(most))
                },
            )
        });
    let spent = Row::of_time(
        "processor time of cofferd in a turn".to_owned(),
        Some(plain.spent.median()),
        observed.spent.median(),
        Most::Unbounded,
    );
    quantiles.chain([spent]).chain(noted).collect()
}

/// Starts a daemon and a run for all of its calls.
async fn stage(config: String) -> Stage {
    let line = format!("{:63}\n", "a line of a file that an agent reads");
    let setup = Setup { config, ..Setup::default() };
    Stage::set_up(setup, |place| {
        std::fs::write(place.join("file"), line.repeat(FILE_BYTES / line.len())).unwrap();
    })
    .await
}

/// Makes the calls of one turn. Returns the times of each, and the processor time that the daemon took for all of it.
async fn turn(stage: &Stage) -> (Vec<Sample>, Duration) {
    let parts = Parts::default();
    let content = format!("{:63}\n", "a line of a file that an agent writes").repeat(FILE_BYTES / 64);
    let operations = [calls::read("file"), calls::exec(&["true"]), calls::write("written", &content)];
    let mut contenders = Vec::new();
    for ((name, turns), operation) in CALLS.into_iter().zip(operations) {
        let act = call(stage, operation, &parts, |answer| match answer {
            Answer::Read(read) => assert_eq!(read.content.len(), FILE_BYTES),
            Answer::Exec(exec) => assert_eq!(exec.exit_code, Some(0)),
            Answer::Write(_) => {}
            other => panic!("{other:?}"),
        });
        contenders.push(Contender::new(name, turns, act.await));
    }
    tokio::time::sleep(SETTLED).await;
    let daemon = Watched::new("cofferd", stage.daemon.pid());
    let before = daemon.spent();
    let samples = hold(contenders, CYCLES).await;
    let spent = daemon.spent().saturating_sub(before);
    (samples.into_iter().map(|(_, sample)| sample).collect(), spent)
}
