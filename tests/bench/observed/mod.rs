//! Calls of a daemon that is observed by all means at once, against the same calls of one that is not.
//!
//! The observed daemon has its metrics scraped, exports one trace in ten, and serves its console to twenty open pages. It takes turns with
//! two that are not observed, which are so far apart that no work of one falls on another. The difference between these two, which should
//! have none, says how far the rest is to be believed.

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

/// Rounds of the same daemons. Two daemons of the same program differ by a few per cent, because their memory lies differently, so each is
/// measured for a short time only.
const ROUNDS: usize = 2;
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
    let rows = Box::pin(measure(args.rounds)).await;
    Table { lane: "observed", columns: ["plain", "observed"], began, ended: Host::look(), rows }.finish(args)
}

/// One call, measured in each round: its medians and its 99th percentiles.
type Quantiles = [Sample; 2];

/// The measures of all daemons of one kind.
#[derive(Default)]
struct Measures {
    calls: [Quantiles; CALLS.len()],
    /// Processor time of the daemon in each turn.
    spent: Sample,
}

async fn measure(rounds: usize) -> Vec<Row> {
    let mut observers = Observers::default();
    let mut measures: [Measures; 3] = Default::default();
    for done in (0..rounds).step_by(ROUNDS) {
        let observed = stage(observers.config().await).await;
        observers.watch(&observed.daemon).await;
        let stages = [stage(String::new()).await, observed, stage(String::new()).await];
        for stage in &stages {
            turn(stage, Duration::ZERO).await; // thrown away
        }
        for round in done..(done + ROUNDS).min(rounds) {
            // Each is the first as often as the others are.
            for place in 0..stages.len() {
                let side = (round + place) % stages.len();
                let (calls, spent) = turn(&stages[side], SETTLED).await;
                measures[side].spent.add(spent);
                for (quantiles, sample) in measures[side].calls.iter_mut().zip(calls) {
                    quantiles[0].add(sample.median());
                    quantiles[1].add(sample.p99());
                }
            }
            eprintln!("round {} of {rounds}: done", round + 1);
        }
        observers.leave().await;
    }
    let [plain, observed, again] = &measures;
    let all = Measures::both(plain, again);
    let mut rows = all.against(observed, "", [Most::Times(MEDIAN), Most::Times(P99)]);
    rows.extend(observers.counts());
    rows.extend(plain.against(again, "plain and plain: ", [Most::Unbounded, Most::Unbounded]));
    rows
}

impl Measures {
    fn both(one: &Self, other: &Self) -> Self {
        let mut both = Self::default();
        for measures in [one, other] {
            both.spent.extend(measures.spent.clone());
            for (quantiles, more) in both.calls.iter_mut().zip(&measures.calls) {
                quantiles.iter_mut().zip(more).for_each(|(sample, more)| sample.extend(more.clone()));
            }
        }
        both
    }

    /// Returns a row for each call and quantile, and one for processor time.
    fn against(&self, other: &Self, before: &str, most: [Most; 2]) -> Vec<Row> {
        let mut rows = Vec::new();
        for ((name, _), (ours, theirs)) in CALLS.iter().zip(self.calls.iter().zip(&other.calls)) {
            for ((quantile, most), (one, other)) in
                ["p50", "p99"].into_iter().zip(most).zip(ours.iter().zip(theirs))
            {
                let what = format!("{before}{name}, {quantile}");
                rows.push(Row::of_time(what, Some(one.median()), other.median(), most));
            }
        }
        let what = format!("{before}processor time of cofferd in a turn");
        rows.push(Row::of_time(what, Some(self.spent.median()), other.spent.median(), Most::Unbounded));
        rows
    }
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

/// Waits for a time without calls, and makes the calls of one turn. Returns the times of each, and the processor time that the daemon took for all of it.
async fn turn(stage: &Stage, quiet: Duration) -> (Vec<Sample>, Duration) {
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
    tokio::time::sleep(quiet).await;
    let daemon = Watched::new("cofferd", stage.daemon.pid());
    let before = daemon.spent();
    let samples = hold(contenders, CYCLES).await;
    let spent = daemon.spent().saturating_sub(before);
    (samples.into_iter().map(|(_, sample)| sample).collect(), spent)
}
