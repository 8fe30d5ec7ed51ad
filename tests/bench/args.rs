//! The command line.

use std::path::PathBuf;
use std::time::Duration;

const USAGE: &str = "\
The benchmark of both lanes, of the audit log, of runs, of their way out, of their companions, of their forks, of a daemon
that is observed, and of balancers.

  tests/bench.sh [--lane container|host|writes|sessions|files|audit|runs|egress|opened|companions|forks|observed|balanced] [--json FILE] [--check] [--rounds N] [--seconds N] [--tree DIRECTORY]
                 [--plot FILE] [--costs FILE] [--ratios] [--write-baseline] [--record-trace]

  --lane LANE       only this one; runs, egress, opened, companions, forks, observed and balanced are measured only when they are named
  --json FILE       also write everything that was measured
  --check           exit with 1 when a goal is missed, or with `--lane runs` a ratio to what is in tests/bench/baseline.json
  --rounds N        rounds of each comparison (30)
  --seconds N       how long the load lasts (10)
  --tree DIRECTORY  the tree to search, copied from here (crates from cargo's registry)

  Of the lane runs:
  --plot FILE       also draw the scaling curve, as SVG
  --costs FILE      also write what a run costs, for `coffer plan --costs`
  --ratios          only what the baseline has, without peers, bursts, memory and curve
  --write-baseline  write the ratios into tests/bench/baseline.json
  --record-trace    record tests/bench/trace.json anew, and measure nothing

  Of the lane forks:
  --ratios          a smaller repository, ten forks at once in place of a hundred, and at most ten rounds";

/// One of the two ways to do an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    Container,
    Host,
    /// Of the host lane, the durable writes alone.
    Writes,
    /// Commands in a session that lasts.
    Sessions,
    /// Large files into a run and out of it.
    Files,
    /// None of both: the audit log.
    Audit,
    /// None of both: runs, from their making to their end.
    Runs,
    /// None of both: the way out of a run, against none.
    Egress,
    /// None of both: connections whose TLS is opened, against direct ones.
    Opened,
    /// None of both: starts of runs with companions, against those without.
    Companions,
    /// None of both: forks, checkpoints, restores and bases of runs.
    Forks,
    /// None of both: calls of a daemon with metrics, traces and an open console, against one without.
    Observed,
    /// None of both: calls through a balancer, against direct ones.
    Balanced,
}

/// How to run.
#[derive(Debug)]
pub(crate) struct Args {
    /// What is measured; both when absent.
    pub(crate) lane: Option<Lane>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) check: bool,
    /// Rounds of each comparison.
    pub(crate) rounds: usize,
    /// Of the load.
    pub(crate) load: Duration,
    /// What is searched; cargo's registry when absent.
    pub(crate) tree: Option<PathBuf>,
    /// Where the scaling curve is drawn.
    pub(crate) plot: Option<PathBuf>,
    /// Where the costs of a run are written.
    pub(crate) costs: Option<PathBuf>,
    pub(crate) runs: Runs,
}

/// How much of the lane of runs is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    All,
    /// What the baseline has.
    Ratios,
    /// The same, and the baseline is written.
    Baseline,
    /// Nothing: the trace is recorded.
    Trace,
}

impl Args {
    pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self {
            lane: None,
            json: None,
            check: false,
            rounds: 30,
            load: Duration::from_secs(10),
            tree: None,
            plot: None,
            costs: None,
            runs: Runs::All,
        };
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n\n{USAGE}"));
            match arg.as_str() {
                "--lane" => parsed.lane = Some(lane(&value()?)?),
                "--json" => parsed.json = Some(value()?.into()),
                "--check" => parsed.check = true,
                "--rounds" => parsed.rounds = number(&value()?)?,
                "--seconds" => parsed.load = Duration::from_secs(number(&value()?)? as u64),
                "--tree" => parsed.tree = Some(value()?.into()),
                "--plot" => parsed.plot = Some(value()?.into()),
                "--costs" => parsed.costs = Some(value()?.into()),
                "--ratios" => parsed.runs = Runs::Ratios,
                "--write-baseline" => parsed.runs = Runs::Baseline,
                "--record-trace" => parsed.runs = Runs::Trace,
                // cargo says so to every benchmark.
                "--bench" => {}
                _ => return Err(USAGE.to_owned()),
            }
        }
        Ok(parsed)
    }

    /// Whether this lane is measured. Runs take minutes and fetch what they are compared with, so they have to be named. Their
    /// way out, their companions, their forks, the observed daemon and balancers have tables of their own.
    pub(crate) fn has(&self, lane: Lane) -> bool {
        let is_named = matches!(
            lane,
            Lane::Runs
                | Lane::Writes
                | Lane::Egress
                | Lane::Opened
                | Lane::Forks
                | Lane::Observed
                | Lane::Balanced
                | Lane::Companions
        );
        self.lane.map_or(!is_named, |only| only == lane)
    }
}

fn lane(name: &str) -> Result<Lane, String> {
    match name {
        "container" => Ok(Lane::Container),
        "host" => Ok(Lane::Host),
        "writes" => Ok(Lane::Writes),
        "sessions" => Ok(Lane::Sessions),
        "files" => Ok(Lane::Files),
        "audit" => Ok(Lane::Audit),
        "runs" => Ok(Lane::Runs),
        "egress" => Ok(Lane::Egress),
        "opened" => Ok(Lane::Opened),
        "companions" => Ok(Lane::Companions),
        "forks" => Ok(Lane::Forks),
        "observed" => Ok(Lane::Observed),
        "balanced" => Ok(Lane::Balanced),
        _ => Err(format!("{name}: no lane\n\n{USAGE}")),
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| format!("{text}: not a number above 0"))
}
